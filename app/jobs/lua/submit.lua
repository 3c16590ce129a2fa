-- Accepts a job: its record, its entry in the stream and what its idempotency key stands for, all or none.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 job id   2 lease, ms   3 idempotency key, or ''   4 token that has it reserved   5 fingerprint
--       6 seconds that it is remembered   7… field, value, …  (what the submitter knows)
-- Returns 1, 0 where the job is there already (a retried call), or -1 where another request has the key.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

local key = ARGV[3]
if key ~= '' then
  expect(key, 'hash')
  local kept = redis.call('HMGET', key, 'token', 'id')
  if kept[2] or kept[1] and kept[1] ~= ARGV[4] then
    return -1
  end
  redis.call('HSET', key, 'token', ARGV[4], 'id', ARGV[1], 'record', KEYS[1], 'fingerprint', ARGV[5])
  redis.call('EXPIRE', key, ARGV[6])
end
expect(KEYS[2], 'stream')
local now = tick(tonumber(ARGV[2]))
accept(KEYS[1], KEYS[2], ARGV[1], now.text, now.ms, {unpack(ARGV, 7)})
return 1
