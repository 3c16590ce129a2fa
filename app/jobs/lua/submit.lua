-- Accepts a job: its record, its entry in the stream and what its idempotency key stands for, all or none.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 job id   2 lease, ms   3 how many jobs of its owner may not be over, or 0 for any number
--       4 its owner's jobs   5 what a job's key begins with   6 idempotency key, or ''   7 token that has it
--       reserved   8 fingerprint   9 seconds that it is remembered
--       10… field, value, …  (what the submitter knows)
-- Returns 1, 0 where the job is there already (a retried call), -1 where its owner has too many, or -2 where
-- another request has the key.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

if is_taken(ARGV[6], ARGV[7]) then
  return -2
end
if not takes_more(ARGV[4], ARGV[5], tonumber(ARGV[3]), {ARGV[1]}) then
  return -1
end
stand_for(ARGV[6], ARGV[7], ARGV[1], KEYS[1], ARGV[8], ARGV[9])
expect(KEYS[2], 'stream')
local now = tick(tonumber(ARGV[2]))
accept(KEYS[1], KEYS[2], ARGV[1], now.text, now.ms, {unpack(ARGV, 10)})
return 1
