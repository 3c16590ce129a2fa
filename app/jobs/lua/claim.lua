#!lua flags=allow-oom
-- Takes a job for one attempt, which is counted here, before any work: a job that kills its
-- worker is still counted.
-- KEYS  1 record   2 stream   3 expiry   4 events   5 clock   6 dead letters
-- ARGV  1 group   2 worker   3 stream entry   4 job id   5 lease, ms   6 attempts allowed
--       7 nonce: the same for the retries of one call, so that a lost reply costs nothing
--       8 1 where the job will share a batch   9 held token, of a holder that starts the job anew, or ''
--       10 error to record where no attempt is left   11 seconds a result is kept
--       12 what is measured of that, JSON (common.lua, count_end)
--       13 1 where the holder's batch, if the job was to share one, had others in it
--       14 0 where the job waits in its worker's hands before anything works on it (beat.lua), or ''
-- Returns {outcome, field, value, …}; outcome is one of
--   claimed    the fields are the record's
--   busy       another worker's lease is good
--   over       the job has ended (or never was, or is a dead letter); its entry is gone now
--   canceled   cancellation had been asked for
--   exhausted  no attempt was left: it has failed

local LOSSES = 20  -- workers that may fall silent while the job only waits in their hands, and cost it nothing
local record, stream, expiry, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, worker, entry, id = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease, allowed, nonce = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local shared, held, cause, keep = ARGV[8], ARGV[9], ARGV[10], ARGV[11]

expect(stream, 'stream')
local now = tick(lease)

local function drop()
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
end

local function finish(state, reason)
  expect(expiry, 'zset')
  redis.call('HSET', record,
    'state', state, 'ended_at', now.text, 'ended_ms', string.format('%d', now.ms), 'error', reason)
  redis.call('HDEL', record, 'stage', 'lease', 'worker', 'shared', 'offered')
  redis.call('HINCRBY', record, 'token', 1)
  redis.call('ZADD', expiry, now.seconds + keep, id)
  count_end(record, state, now.ms, reason, ARGV[12])
  index_job(record, id)
  tell_end(events, record)
  drop()
end

local function claimed()
  local answer = redis.call('HGETALL', record)
  table.insert(answer, 1, 'claimed')
  return answer
end

local state = is_hash(record) and redis.call('HGET', record, 'state')
if state ~= 'queued' and state ~= 'running' or redis.call('HEXISTS', record, 'dead') == 1 then
  drop()
  return {'over'}
end
if redis.call('HGET', record, 'nonce') == nonce then
  return claimed()
end

local is_holder = held ~= '' and state == 'running' and redis.call('HGET', record, 'token') == held
if held ~= '' and not is_holder then
  return {'busy'}
end
if state == 'running' and not is_holder and (number(redis.call('HGET', record, 'lease')) or 0) > now.ms then
  redis.call('HDEL', record, 'offered')
  return {'busy'}
end
if redis.call('HGET', record, 'cancel') then
  finish('canceled', '')
  return {'canceled'}
end

-- A batch that died is run again job by job within the attempt it had: whose fault it was is not known yet.
local is_same_attempt = is_holder and shared == '0' and ARGV[13] == '1'
  and redis.call('HGET', record, 'shared') == '1'
-- One that brought its job nearer to the end is not counted: the job comes to an end, however often it begins.
local has_gained = redis.call('HDEL', record, 'gained') == 1
-- Nor one in which nothing worked on it: its worker died of something else.
local has_waited = state == 'running' and not is_holder and redis.call('HGET', record, 'working') == '0'
  and redis.call('HINCRBY', record, 'losses', 1) <= LOSSES
if not is_same_attempt and not has_gained and not has_waited then
  if (number(redis.call('HGET', record, 'attempt')) or 0) >= allowed then
    finish('failed', cause)
    return {'exhausted'}
  end
  if redis.call('HINCRBY', record, 'attempt', 1) > 1 then
    count('retried')
  end
end

local is_first = redis.call('HSETNX', record, 'started_at', now.text) == 1
redis.call('HSETNX', record, 'started_ms', string.format('%d', now.ms))
redis.call('HINCRBY', record, 'token', 1)
redis.call('HSET', record,
  'state', 'running', 'worker', worker, 'last_worker', worker, 'nonce', nonce, 'shared', shared,
  'claimed_ms', string.format('%d', now.ms),
  'lease', string.format('%d', now.ms + lease), 'stage', 'decode')
redis.call('HDEL', record, 'offered', 'working')
if ARGV[14] ~= '' then
  redis.call('HSET', record, 'working', ARGV[14])
end
index_job(record, id)
tell(events, record)
if is_first then
  tell_webhook(record, 'started')
end
redis.pcall('XCLAIM', stream, group, worker, 0, entry, 'JUSTID')
return claimed()
