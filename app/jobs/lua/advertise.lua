#!lua flags=allow-oom
-- Lists a worker, by our clock, for a while more; among those that take jobs where its engine is ready.
-- KEYS  1 names of workers   2 the worker's advertisement   3 clock   4 dead letters
-- ARGV  1 name   2 advertisement, JSON   3 how long, ms
-- Returns 1.

local names, lasts = KEYS[1], tonumber(ARGV[3])
expect(names, 'zset')
redis.call('SET', KEYS[2], ARGV[2], 'PX', lasts)
local lapses = tick(lasts).ms + lasts
redis.call('ZADD', names, lapses, ARGV[1])
expect(names .. ':ready', 'zset')
if decoded(ARGV[2]).is_ready == true then
  redis.call('ZADD', names .. ':ready', lapses, ARGV[1])
else
  redis.call('ZREM', names .. ':ready', ARGV[1])
end
return 1
