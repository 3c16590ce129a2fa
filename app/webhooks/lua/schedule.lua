-- Takes an end out of the stream of all ends and, where its job has a webhook, makes a delivery of it.
-- Both or neither, and once: a second process finds the end gone.
-- KEYS  1 all ends   2 deliveries by due time   3 the job's delivery
-- ARGV  1 group   2 entry   3 job   4… field, value, … of the delivery; none without a webhook
-- Returns 1 where this call made the delivery, else 0.

redis.call('XACK', KEYS[1], ARGV[1], ARGV[2])
if redis.call('XDEL', KEYS[1], ARGV[2]) == 0 or #ARGV == 3 or redis.call('EXISTS', KEYS[3]) == 1 then
  return 0
end
local time = redis.call('TIME')
redis.call('HSET', KEYS[3], 'state', 'pending', 'attempt', 0, unpack(ARGV, 4))
redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000), ARGV[3])
return 1
