#!lua flags=allow-oom
-- Renews the lease of a running job, tells how far it is, and learns whether to go on.
-- KEYS  1 record   2 stream   3 clock   4 dead letters
-- ARGV  1 group   2 worker   3 token   4 lease, ms   5 stage   6 progress   7 answer so far, or ''
--       8 1 where this attempt has finished a part that the next one goes on behind
-- Returns 'go', 'canceled' (cancellation was asked for) or 'lost' (the job is no longer this worker's).

local record, lease = KEYS[1], tonumber(ARGV[4])
if not is_hash(record)
  or redis.call('HGET', record, 'state') ~= 'running' or redis.call('HGET', record, 'token') ~= ARGV[3] then
  return 'lost'
end

-- Progress never goes back, not even where a job begins anew.
local progress = math.max(tonumber(ARGV[6]), number(redis.call('HGET', record, 'progress')) or 0)
redis.call('HSET', record,
  'lease', string.format('%d', tick(lease).ms + lease), 'stage', ARGV[5], 'progress', progress)
if ARGV[7] ~= '' then
  redis.call('HSET', record, 'answer', ARGV[7])
end
if ARGV[8] == '1' then
  redis.call('HSET', record, 'gained', 1)
end

-- Recovery goes by the record's lease; workers of an older version go by the entry's idle time.
redis.pcall('XCLAIM', KEYS[2], ARGV[1], ARGV[2], 0, redis.call('HGET', record, 'entry'), 'JUSTID')
return redis.call('HGET', record, 'cancel') and 'canceled' or 'go'
