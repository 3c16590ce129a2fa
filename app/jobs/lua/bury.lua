#!lua flags=allow-oom
-- Takes an entry out of its queue and leaves a dead letter for it. The record stays, its attempt not counted.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 group   2 entry   3 name of the letter   4 the letter, JSON
-- Returns 1, or 0 where it was buried before, or requeued since.

local record, stream = KEYS[1], KEYS[2]
expect(DEAD, 'hash')
expect(stream, 'stream')
if redis.call('XDEL', stream, ARGV[2]) == 0 then
  redis.pcall('XACK', stream, ARGV[1], ARGV[2])
  return 0
end
redis.pcall('XACK', stream, ARGV[1], ARGV[2])
redis.call('HSET', DEAD, ARGV[3], ARGV[4])
if is_hash(record) then
  if redis.call('HGET', record, 'state') == 'running' then
    redis.call('HSET', record, 'state', 'queued')
    redis.pcall('HINCRBY', record, 'token', 1)
  end
  redis.call('HSET', record, 'dead', 1)
  redis.call('HDEL', record, 'stage', 'lease', 'worker', 'shared', 'offered', 'gained')
  index_job(record, redis.call('HGET', record, 'id') or '')
  tell(KEYS[3], record)
end
return 1
