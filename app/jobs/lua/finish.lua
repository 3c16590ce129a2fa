#!lua flags=allow-oom
-- Ends a claim or a job. A terminal state is written once.
-- KEYS  1 record   2 stream   3 expiry   4 recent runs   5 events   6 clock
--       7 dead letters
-- ARGV  1 group   2 job id   3 token, or '' for those who hold no claim   4 state
--       5 answer, or ''   6 error, or ''   7 seconds a result is kept   8 lease, ms
--       9 segments done, or ''
--       10 what was measured, JSON, or '' (common.lua, count_end)
--       11 sha256 of the file whose features are kept from then on, or ''
-- With a token:  succeeded, failed, canceled; queued hands the job back, its attempt not counted;
--                behind does the same with a film, at the end of its lane and not ahead of the backlog. Where
--                cancellation was asked for, both ends become canceled, and the holder hears that it has lost it.
-- Without:       canceled ends a queued job and asks a running one to stop; expired forgets a result.
-- Returns 'done', 'asked' (a running job will stop), 'over' (it had ended), 'lost' (the token is old, or
-- the job is not there).

local record, stream, expiry, runs, events = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local FORGOTTEN = string.gsub(CLOCK, 'clock$', 'forgotten')
local VANISHING = string.gsub(CLOCK, 'clock$', 'vanishing')
local RUNS = 50  -- that are kept, for estimates of how long jobs wait
local group, id, token, target = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local answer, reason, keep, lease, measured = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]), ARGV[10]

expect(expiry, 'zset')
expect(stream, 'stream')
local state = is_hash(record) and redis.call('HGET', record, 'state')
if not state then
  redis.call('ZREM', expiry, id)
  index_job(record, id)
  return 'lost'
end
local is_over = state ~= 'queued' and state ~= 'running'
local entry = redis.call('HGET', record, 'entry')

-- Keeps from when to when the worker had the job.
local function keep_run(now)
  local kept = redis.call('HMGET', record, 'claimed_ms', 'worker')
  if kept[1] and kept[2] then
    expect(runs, 'list')
    redis.call('LPUSH', runs, string.format('%s %d %s', kept[1], now.ms, kept[2]))
    redis.call('LTRIM', runs, 0, RUNS - 1)
  end
end

local function settle()
  local now = tick(lease)
  if target ~= 'canceled' then
    keep_run(now)
  end
  redis.call('HSET', record,
    'state', target, 'ended_at', now.text, 'ended_ms', string.format('%d', now.ms), 'error', reason, 'ended_by', token)
  redis.call('HDEL', record, 'stage', 'lease', 'worker', 'shared', 'offered')
  redis.call('ZADD', expiry, now.seconds + keep, id)
  count_end(record, target, now.ms, reason, measured)
  index_job(record, id)
  remove_entry(stream, group, entry)
  if redis.call('HDEL', record, 'dead') == 1 then
    redis.pcall('HDEL', DEAD, id)
  end
  tell_end(events, record, target == 'succeeded' and new_segments(record, ARGV[9]) or nil)
  return 'done'
end

-- A batch is kept as long as the last record of its jobs, which is the one that expires last.
local function expire_batch()
  local batch = decoded(redis.call('HGET', record, 'submission')).batch
  if type(batch) ~= 'string' then
    return
  end
  local batch_key = string.gsub(CLOCK, 'clock$', 'batch:') .. batch
  local ids = redis.pcall('ZRANGE', batch_key .. ':jobs', 0, -1)
  for _, other in ipairs(ids.err and {} or ids) do
    local key = string.gsub(CLOCK, 'clock$', 'job:') .. other
    if is_hash(key) and redis.call('HGET', key, 'state') ~= 'expired' then
      return
    end
  end
  redis.call('EXPIRE', batch_key, math.ceil(keep))
  redis.call('EXPIRE', batch_key .. ':jobs', math.ceil(keep))
end

-- Tells all workers that the features of the job's file are to be removed, for as long as records stay.
local function forget_features()
  local sha256, now = redis.call('HGET', record, 'sha256'), redis.call('TIME')[1]
  if sha256 then
    expect(FORGOTTEN, 'zset')
    redis.call('ZADD', FORGOTTEN, now, sha256)
    redis.call('ZREMRANGEBYSCORE', FORGOTTEN, '-inf', now - keep)
  end
end

-- Frees what the sender told, but for what its webhook's message may still be written of.
local function strip_submission()
  local told = decoded(redis.call('HGET', record, 'submission'))
  if type(told.webhook) ~= 'string' and (told.metadata or told.source_url) then
    told.metadata, told.source_url = nil, nil
    redis.call('HSET', record, 'submission', cjson.encode(told))
  end
end

if target == 'expired' then
  if not is_over or state == 'expired' then
    return 'lost'
  end
  forget_features()
  redis.call('HSET', record, 'state', 'expired')
  count('left:' .. state)
  redis.call('HDEL', record, 'answer', 'error')
  strip_submission()
  redis.call('EXPIRE', record, math.ceil(keep))
  redis.call('ZREM', expiry, id)
  -- The record vanishes by itself, and its places in the index then (app/jobs/job_index.py).
  expect(VANISHING, 'zset')
  redis.call('ZADD', VANISHING, redis.call('TIME')[1] + math.ceil(keep), id)
  index_job(record, id)
  expire_batch()
  redis.call('DEL', events)
  return 'done'
end

if token == '' then
  if is_over then
    return 'over'
  end
  if state == 'running' then
    if redis.call('HSET', record, 'cancel', 1) == 1 then
      tell(events, record)
    end
    return 'asked'
  end
  return settle()
end

if state == target and redis.call('HGET', record, 'ended_by') == token then
  return 'done'  -- the first call's reply was lost
end
if state ~= 'running' or redis.call('HGET', record, 'token') ~= token then
  return 'lost'
end
if target == 'queued' or target == 'behind' then
  redis.call('HSET', record, 'state', 'queued')
  redis.call('HDEL', record, 'stage', 'lease', 'worker', 'shared', 'offered', 'gained')
  redis.call('HINCRBY', record, 'attempt', -1)
  redis.call('HINCRBY', record, 'token', 1)
  if target == 'behind' then
    remove_entry(stream, group, entry)
  else  -- It has no worker: the next one that looks takes it, ahead of the backlog.
    redis.pcall('XCLAIM', stream, group, 'nobody', 0, entry, 'IDLE', string.format('%d', lease), 'JUSTID')
    wake_one()
  end
  if #redis.call('XRANGE', stream, entry, entry) == 0 then  -- or the stream was emptied
    redis.call('HSET', record, 'entry', enqueue(stream, record, id, target == 'behind' and '+film' or nil))
  end
  index_job(record, id)
  redis.call('HDEL', CLOCK, 'looked')  -- it is looked for at once
  tell(events, record)
  return 'done'
end

if target ~= 'canceled' and redis.call('HGET', record, 'cancel') then
  target, reason = 'canceled', ''
  settle()
  return 'lost'
end
if answer ~= '' then
  redis.call('HSET', record, 'answer', answer)
end
if target == 'succeeded' then
  redis.call('HSET', record, 'progress', 1, 'results', token)
  if ARGV[11] ~= '' then
    redis.call('HSET', record, 'sha256', ARGV[11])
  end
end
return settle()
