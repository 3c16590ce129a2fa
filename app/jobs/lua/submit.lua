-- Accepts a job: its record and its entry in the stream, both or neither.
-- KEYS  1 record   2 stream   3 its owner's jobs   4 clock   5 dead letters
-- ARGV  1 job id   2 lease, ms   3 how many jobs of the owner may not be over, or 0 for any number
--       4 what the names of records begin with   5… field, value, …  (what the submitter knows)
-- Returns 1, 0 where the job is there already (a retried call), or -1 where its owner has too many.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

-- Jobs are taken out of the set when it is full, and not as they end: however one ended, or was lost, it counts
-- no longer.
local function has_too_many(most)
  local active = KEYS[3]
  expect(active, 'set')
  if redis.call('SCARD', active) >= most then
    for _, id in ipairs(redis.call('SMEMBERS', active)) do
      local state = is_hash(ARGV[4] .. id) and redis.call('HGET', ARGV[4] .. id, 'state')
      if state ~= 'queued' and state ~= 'running' then
        redis.call('SREM', active, id)
      end
    end
  end
  return redis.call('SCARD', active) >= most
end

local most = tonumber(ARGV[3])
if most > 0 then
  if has_too_many(most) then
    return -1
  end
  redis.call('SADD', KEYS[3], ARGV[1])
end

expect(KEYS[2], 'stream')
local now = tick(tonumber(ARGV[2]))
accept(KEYS[1], KEYS[2], ARGV[1], now.text, now.ms, {unpack(ARGV, 5)})
return 1
