-- Notes how an attempt at a delivery went, and what follows from that: another attempt, or the job's next message.
-- KEYS  1 deliveries by due time   2 the job's delivery   3 its attempts   4 counts, for /metrics
-- ARGV  1 job   2 number of the attempt   3 delivered, failed, or pending: to be tried again   4 in how many ms
--       5 the attempt, JSON   6 attempts that are kept   7 seconds that an ended delivery is kept
-- Returns 1, or 0 where another process has begun the next attempt meanwhile.

local deliveries, delivery, attempts = KEYS[1], KEYS[2], KEYS[3]
local kept = redis.call('HMGET', delivery, 'attempt', 'state', 'number')
if kept[1] ~= ARGV[2] or kept[2] ~= 'pending' then
  return 0
end
redis.call('RPUSH', attempts, ARGV[5])
redis.pcall('HINCRBY', KEYS[4], 'webhook:' .. ARGV[3], 1)
redis.call('LTRIM', attempts, -tonumber(ARGV[6]), -1)
if ARGV[3] == 'pending' then
  redis.call('ZADD', deliveries, now_ms() + tonumber(ARGV[4]), ARGV[1])
  return 1
end

-- Drops the segments that wait behind a message that failed: else the end would wait for an attempt at each.
local function drop_segments()
  local last = tonumber(kept[3]) or 1
  for _, field in ipairs(redis.call('HKEYS', delivery)) do
    local number = tonumber(string.match(field, '^w(%d+)$'))
    if number and string.find(redis.call('HGET', delivery, field), '"job.segment"', 1, true) then
      redis.call('HDEL', delivery, field)
      last = math.max(last, number)
    end
  end
  redis.call('HSET', delivery, 'number', last)
end

redis.call('ZREM', deliveries, ARGV[1])
redis.call('HSET', delivery, 'state', ARGV[3])
redis.call('HDEL', delivery, 'body')
for _, key in ipairs({delivery, attempts}) do
  redis.call('EXPIRE', key, math.ceil(tonumber(ARGV[7])))
end
if ARGV[3] == 'failed' then
  drop_segments()
end
send_next(deliveries, delivery, ARGV[1])
return 1
