-- Accepts a job: its record and its entry in the stream, both or neither.
-- KEYS  1 record   2 stream   3 clock   4 dead letters
-- ARGV  1 job id   2 lease, ms   3… field, value, …  (what the submitter knows)
-- Returns 1, or 0 where the job is there already (a retried call).

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

expect(KEYS[2], 'stream')
local now = tick(tonumber(ARGV[2]))
redis.call('HSET', KEYS[1],
  'id', ARGV[1], 'state', 'queued', 'created_at', now.text, 'created_ms', string.format('%d', now.ms),
  'attempt', 0, 'token', 0, 'progress', 0, unpack(ARGV, 3))
local entry = redis.call('XADD', KEYS[2], '*', 'job', ARGV[1])
redis.call('HSET', KEYS[1], 'entry', entry)
count('accepted')
return 1
