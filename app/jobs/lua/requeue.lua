-- Puts the job of a dead letter into its queue again, with all its attempts.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 job id = name of the letter
-- Returns 1, or 0 where there is no such letter any more.

if redis.call('HDEL', DEAD, ARGV[1]) == 0 then
  return 0
end
expect(KEYS[2], 'stream')
local entry = enqueue(KEYS[2], KEYS[1], ARGV[1])
redis.call('HSET', KEYS[1], 'state', 'queued', 'attempt', 0, 'entry', entry)
redis.call('HDEL', KEYS[1], 'dead', 'stage', 'lease', 'worker', 'shared', 'offered', 'gained')
redis.call('HINCRBY', KEYS[1], 'token', 1)
index_job(KEYS[1], ARGV[1])
tell(KEYS[3], KEYS[1])
return 1
