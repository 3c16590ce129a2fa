#!lua flags=allow-oom
-- Renews the lease of a running job, tells how far it is, and learns whether to continue.
-- KEYS  1 record   2 stream   3 events   4 clock   5 dead letters
-- ARGV  1 group   2 worker   3 token   4 lease, ms   5 stage   6 progress   7 answer so far, or ''
--       8 segments done, or ''   9 1 where this attempt has finished a part that the next one goes on behind
--       10 1 where a child works on it, 0 where it waits for one, or ''   11 what is written so far, or ''
-- Returns 'go', 'canceled' (cancellation was asked for) or 'lost' (the job is no longer this worker's).

local record, lease = KEYS[1], tonumber(ARGV[4])
if not is_hash(record)
  or redis.call('HGET', record, 'state') ~= 'running' or redis.call('HGET', record, 'token') ~= ARGV[3] then
  return 'lost'
end

-- Progress never goes back, not even where a job begins anew.
local last = redis.call('HMGET', record, 'progress', 'stage')
local last_progress = number(last[1]) or 0
local progress = math.max(tonumber(ARGV[6]), last_progress)
redis.call('HSET', record,
  'lease', string.format('%d', tick(lease).ms + lease), 'stage', ARGV[5], 'progress', progress)
if ARGV[7] ~= '' then
  redis.call('HSET', record, 'answer', ARGV[7])
end
if ARGV[9] == '1' then
  redis.call('HSET', record, 'gained', 1)
end
if ARGV[10] ~= '' then
  redis.call('HSET', record, 'working', ARGV[10])
end
local segments = new_segments(record, ARGV[8])
if segments or (ARGV[11] or '') ~= '' or last[2] ~= ARGV[5] or math.floor(100 * progress) > math.floor(100 * last_progress) then
  tell(KEYS[3], record, segments, ARGV[11])
  tell_webhook_segments(record, segments)
end

-- Recovery goes by the record's lease; workers of an older version go by the entry's idle time.
redis.pcall('XCLAIM', KEYS[2], ARGV[1], ARGV[2], 0, redis.call('HGET', record, 'entry'), 'JUSTID')
return redis.call('HGET', record, 'cancel') and 'canceled' or 'go'
