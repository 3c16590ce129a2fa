-- Accepts a job: its record and its entry in the stream, both or neither.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 job id   2 lease, ms   3… field, value, …  (what the submitter knows)
-- Returns 1, or 0 where the job is there already (a retried call).

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

expect(KEYS[2], 'stream')
local now = tick(tonumber(ARGV[2]))
accept(KEYS[1], KEYS[2], ARGV[1], now.text, now.ms, {unpack(ARGV, 3)})
return 1
