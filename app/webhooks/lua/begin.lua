-- Begins attempts at deliveries that are due. Each is due again when its lease has lapsed, so that another
-- process makes the next attempt should this one die.
-- KEYS  1 deliveries by due time
-- ARGV  1 what a delivery's key begins with   2 lease, ms   3 most
-- Returns {{job, attempt, id, url, body}, …}

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local begun = {}
for _, job in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, tonumber(ARGV[3]))) do
  local key = ARGV[1] .. job
  local kept = redis.call('HMGET', key, 'id', 'url', 'body')
  if kept[1] and kept[2] and kept[3] then
    redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), job)
    table.insert(begun, {job, redis.call('HINCRBY', key, 'attempt', 1), kept[1], kept[2], kept[3]})
  else
    redis.call('ZREM', KEYS[1], job)
  end
end
return begun
