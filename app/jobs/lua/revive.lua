-- Puts a job that failed or was canceled into its queue again, with all its attempts and as if it came now.
-- KEYS  1 record   2 stream   3 expiry   4 events   5 clock   6 dead letters
-- ARGV  1 job id   2 lease, ms
-- Returns 'queued', or the state of one that is in another, 'lost' where there is no such job.

local record, stream, expiry, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local state = is_hash(record) and redis.call('HGET', record, 'state')
if state ~= 'failed' and state ~= 'canceled' then
  return state or 'lost'
end
expect(stream, 'stream')
expect(expiry, 'zset')
redis.call('HSET', record,
  'state', 'queued', 'attempt', 0, 'progress', 0,
  'created_ms', string.format('%d', tick(tonumber(ARGV[2])).ms),
  'entry', enqueue(stream, record, id))
redis.call('HDEL', record, 'answer', 'error', 'cancel', 'nonce', 'results', 'ended_by', 'ended_at', 'ended_ms',
  'started_at', 'started_ms', 'claimed_ms', 'segments_told', 'gained', 'losses', 'stage', 'lease', 'worker', 'shared', 'offered')
redis.call('HINCRBY', record, 'token', 1)
redis.call('ZREM', expiry, id)
index_job(record, id)
count('left:' .. state)
tell(KEYS[4], record)
return 'queued'
