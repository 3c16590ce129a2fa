#!lua flags=allow-oom
-- Renews the lease of a running job, tells how far it is, and learns whether to go on.
-- KEYS  1 record   2 stream
-- ARGV  1 group   2 worker   3 token   4 lease, ms   5 stage   6 progress   7 answer so far, or ''
-- Returns 'go', 'canceled' (cancellation was asked for) or 'lost' (the job is no longer this worker's).

local record = KEYS[1]
if redis.call('HGET', record, 'state') ~= 'running' or redis.call('HGET', record, 'token') ~= ARGV[3] then
  return 'lost'
end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', record,
  'lease', string.format('%d', now_ms + ARGV[4]), 'stage', ARGV[5], 'progress', ARGV[6])
if ARGV[7] ~= '' then
  redis.call('HSET', record, 'answer', ARGV[7])
end

-- Recovery goes by the entry's idle time, which this sets to zero without counting a delivery.
redis.call('XCLAIM', KEYS[2], ARGV[1], ARGV[2], 0, redis.call('HGET', record, 'entry'), 'JUSTID')
return redis.call('HGET', record, 'cancel') and 'canceled' or 'go'
