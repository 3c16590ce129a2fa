-- Accepts a job: its record and its entry in the stream, both or neither.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 job id   2 lease, ms   3 how many jobs of its owner may not be over, or 0 for any number
--       4 its owner's jobs   5 what a job's key begins with   6… field, value, …  (what the submitter knows)
-- Returns 1, 0 where the job is there already (a retried call), or -1 where its owner has too many.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

if not takes_more(ARGV[4], ARGV[5], tonumber(ARGV[3]), {ARGV[1]}) then
  return -1
end
expect(KEYS[2], 'stream')
local now = tick(tonumber(ARGV[2]))
accept(KEYS[1], KEYS[2], ARGV[1], now.text, now.ms, {unpack(ARGV, 6)})
return 1
