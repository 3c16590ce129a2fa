-- Accepts the jobs of a batch: all their records and entries in the stream and the batch's own record, or nothing.
-- KEYS  1 batch   2 the batch's jobs by creation   3 stream   4 clock   5 dead letters
-- ARGV  1 lease, ms   2 what a job's key begins with   3 jobs, JSON: [[id, [field, value, …]], …]
--       4… field, value, … of the batch
-- Returns how many jobs, or 0 where the batch is there already (a retried call).

if redis.call('EXISTS', KEYS[1]) == 1 then
  return 0
end

local set, stream, jobs = KEYS[2], KEYS[3], cjson.decode(ARGV[3])
expect(stream, 'stream')
local now, time = tick(tonumber(ARGV[1])), redis.call('TIME')
for k, job in ipairs(jobs) do
  -- A microsecond apart, so that they are listed in their order.
  local micro = tonumber(time[2]) + k - 1
  local second = tonumber(time[1]) + math.floor(micro / 1e6)
  local id, record = job[1], ARGV[2] .. job[1]
  accept(record, stream, id, string.format('%d.%06d', second, micro % 1e6), now.ms, job[2])
  redis.call('ZADD', set, string.format('%d%06d', second, micro % 1e6), id)
end
redis.call('HSET', KEYS[1], 'created_at', now.text, unpack(ARGV, 4))
return #jobs
