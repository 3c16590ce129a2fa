#!lua flags=allow-oom
-- Lists a worker, by our clock, for a while more.
-- KEYS  1 names of workers   2 the worker's advertisement   3 clock   4 dead letters
-- ARGV  1 name   2 advertisement, JSON   3 how long, ms
-- Returns 1.

local names, lasts = KEYS[1], tonumber(ARGV[3])
expect(names, 'zset')
redis.call('SET', KEYS[2], ARGV[2], 'PX', lasts)
redis.call('ZADD', names, tick(lasts).ms + lasts, ARGV[1])
return 1
