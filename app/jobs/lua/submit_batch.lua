-- Accepts the jobs of a batch: all their records and entries in the stream and the batch's own record, or nothing.
-- KEYS  1 batch   2 the batch's jobs by creation   3 stream   4 clock   5 dead letters
-- ARGV  1 lease, ms   2 how many jobs of its owner may not be over, or 0 for any number   3 its owner's jobs
--       4 what a job's key begins with   5 idempotency key, or ''   6 token that has it reserved
--       7 fingerprint   8 seconds that it is remembered   9 jobs, JSON: [[id, [field, value, …]], …]
--       10 batch id   11… field, value, … of the batch
-- Returns how many jobs, 0 where the batch is there already (a retried call), -1 where its owner would have too
-- many, or -2 where another request has the key.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

local set, stream, jobs = KEYS[2], KEYS[3], cjson.decode(ARGV[9])
local ids = {}
for k, job in ipairs(jobs) do
  ids[k] = job[1]
end
if is_taken(ARGV[5], ARGV[6]) then
  return -2
end
if not takes_more(ARGV[3], ARGV[4], tonumber(ARGV[2]), ids) then
  return -1
end
stand_for(ARGV[5], ARGV[6], ARGV[10], KEYS[1], ARGV[7], ARGV[8])
expect(stream, 'stream')
local now, time = tick(tonumber(ARGV[1])), redis.call('TIME')
for k, job in ipairs(jobs) do
  -- A microsecond apart, so that they are listed in their order.
  local micro = tonumber(time[2]) + k - 1
  local second = tonumber(time[1]) + math.floor(micro / 1e6)
  local id, record = job[1], ARGV[4] .. job[1]
  accept(record, stream, id, string.format('%d.%06d', second, micro % 1e6), now.ms, job[2])
  redis.call('ZADD', set, string.format('%d%06d', second, micro % 1e6), id)
end
redis.call('HSET', KEYS[1], 'created_at', now.text, unpack(ARGV, 11))
return #jobs
