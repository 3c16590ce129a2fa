-- Notes how an attempt at a delivery went, and what follows from that.
-- KEYS  1 deliveries by due time   2 the job's delivery   3 its attempts   4 counts, for /metrics
-- ARGV  1 job   2 number of the attempt   3 delivered, failed, or pending: to be tried again   4 in how many ms
--       5 the attempt, JSON   6 attempts that are kept   7 seconds that an ended delivery is kept
-- Returns 1, or 0 where another process has begun the next attempt meanwhile.

local deliveries, delivery, attempts = KEYS[1], KEYS[2], KEYS[3]
local kept = redis.call('HMGET', delivery, 'attempt', 'state')
if kept[1] ~= ARGV[2] or kept[2] ~= 'pending' then
  return 0
end
redis.call('RPUSH', attempts, ARGV[5])
redis.pcall('HINCRBY', KEYS[4], 'webhook:' .. ARGV[3], 1)
redis.call('LTRIM', attempts, -tonumber(ARGV[6]), -1)
if ARGV[3] == 'pending' then
  local time = redis.call('TIME')
  redis.call('ZADD', deliveries, time[1] * 1000 + math.floor(time[2] / 1000) + tonumber(ARGV[4]), ARGV[1])
  return 1
end
redis.call('ZREM', deliveries, ARGV[1])
redis.call('HSET', delivery, 'state', ARGV[3])
redis.call('HDEL', delivery, 'body')
for _, key in ipairs({delivery, attempts}) do
  redis.call('EXPIRE', key, math.ceil(tonumber(ARGV[7])))
end
return 1
