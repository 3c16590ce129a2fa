-- Takes an event out of the stream of all ends and, where a webhook is told of it, has its message sent: at once, or
-- behind those of the job with a lower number. Both or neither, and once: a second process finds the event gone.
-- KEYS  1 all ends   2 deliveries by due time   3 the job's delivery
-- ARGV  1 group   2 entry   3 job   4 number of the message among the job's   5 the delivery's fields, JSON list; '[]'
--       where there is no message at its place, '' where it is not known whether the job has a webhook
--       6 seconds that it is kept until a message is sent
-- Returns 1 where this call made the delivery, else 0.

redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
local kept = redis.call('HMGET', KEYS[3], 'number', 'state')
if redis.call('XDEL', KEYS[1], ARGV[2]) == 0 or ARGV[5] == '' and not kept[2] then
  return 0
end
local last = tonumber(kept[1]) or (kept[2] and 1 or 0)  -- versions before had one message
if tonumber(ARGV[4]) <= last then  -- it waited behind one that failed
  return 0
end
redis.call('HSET', KEYS[3], 'number', last, 'w' .. ARGV[4], ARGV[5] == '' and '[]' or ARGV[5])
if not kept[2] then  -- until a message is sent
  redis.call('EXPIRE', KEYS[3], ARGV[6])
end
if kept[2] ~= 'pending' then
  send_next(KEYS[2], KEYS[3], ARGV[3])
end
return 1
