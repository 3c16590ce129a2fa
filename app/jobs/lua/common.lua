-- Stands before every script: the service's clock, and keys that hold something of another type.
-- The last two of every script's KEYS are the clock (a hash) and the dead letters (a hash).

local CLOCK, DEAD = KEYS[#KEYS - 1], KEYS[#KEYS]
local COUNTS = string.gsub(CLOCK, 'clock$', 'counts')
local INDEX = string.gsub(CLOCK, 'clock$', 'index')

-- A number that a value stands for, or nil; neither infinite nor too large to count with.
local function number(value)
  local found = tonumber(value)
  if found and found > -1e15 and found < 1e15 then
    return found
  end
end

-- Renames a key that holds something of another type than it must, and leaves a dead letter about it.
local function expect(key, kind)
  local found = redis.call('TYPE', key).ok
  if found == kind or found == 'none' then
    return
  end
  local kept_as = key .. ':unreadable'
  redis.call('RENAME', key, kept_as)
  if key ~= DEAD then
    expect(DEAD, 'hash')
    redis.call('HSET', DEAD, kept_as, cjson.encode({
      kind = 'key', key = kept_as, reason = key .. ' was a ' .. found .. ' where a ' .. kind .. ' belongs',
      at = tonumber(redis.call('TIME')[1])}))
  end
end

local function is_hash(key)
  return redis.call('TYPE', key).ok == 'hash'
end

-- Tells those who follow a job how it stands now. segments: 'from-to', those that are done since; else none
-- is, and both are how many there are. text: what is written so far. Of a long history the last ones are kept.
local function tell(events, record, segments, text)
  local now = redis.call('HMGET', record, 'state', 'stage', 'progress', 'attempt', 'cancel', 'segments_told')
  local done = now[6] or '0'
  if not now[1] then  -- no record that could be read
    return
  end
  local function add()
    return redis.pcall('XADD', events, 'MAXLEN', '~', 300, '*', 'state', now[1], 'stage', now[2] or '',
      'progress', now[3] or 0, 'attempt', now[4] or 0, 'cancel', now[5] and 1 or 0, 'segments', segments or done .. '-' .. done,
      'text', text or '')
  end
  local reply = add()
  if type(reply) == 'table' and reply.err then
    expect(events, 'stream')
    add()
  end
end

local function decoded(text)
  local is_read, value = pcall(cjson.decode, text or '')
  return is_read and type(value) == 'table' and value or {}
end

-- Writes an event of a job to the stream of all ends, whose consumer group removes what it has read; where no group
-- reads, the youngest are kept. kind: started, segment (with its number) or ended. Ends are all there; `told` is the
-- place of what the job's webhook is to be told among all that it is told, 0 of what it is not.
local ENDED = string.gsub(CLOCK, 'clock$', 'ended')
local function tell_webhook(record, kind, segment)
  local told = 0
  for _, each in ipairs(decoded(redis.call('HGET', record, 'submission')).webhook_events_filter or {'ended'}) do
    if each == kind and told == 0 then
      told = redis.call('HINCRBY', record, 'told', 1)
    end
  end
  if told > 0 or kind == 'ended' then
    local now = redis.call('HMGET', record, 'id', 'state')
    expect(ENDED, 'stream')
    redis.call('XADD', ENDED, 'MAXLEN', '~', 100000, '*', 'job', now[1], 'state', now[2], 'told', told, 'segment', segment or '')
  end
end

-- Tells the job's webhook of segments, 'from-to', or nil where none is done since.
local function tell_webhook_segments(record, segments)
  local from, to = string.match(segments or '', '^(%d+)-(%d+)$')
  for number = tonumber(from or 0), tonumber(to or 0) - 1 do
    tell_webhook(record, 'segment', number)
  end
end

-- Writes a job's end, once, to the job's own stream and to that of all ends.
local function tell_end(events, record, segments)
  tell(events, record, segments)
  -- A stream takes 4 KiB in advance, which one that grows no more gives back when it is written anew.
  redis.pcall('RESTORE', events, 0, redis.call('DUMP', events), 'REPLACE')
  tell_webhook_segments(record, segments)
  tell_webhook(record, 'ended')
end

-- Notes how many segments of a film are done ('' where that is not told), and returns 'from-to', those that
-- are new, or nil. An attempt that begins anew has fewer than the last one: all of its own are new.
local function new_segments(record, done)
  local told = number(redis.call('HGET', record, 'segments_told')) or 0
  local count = number(done)
  if not count or count == told then
    return nil
  end
  redis.call('HSET', record, 'segments_told', count)
  return string.format('%d-%d', count < told and 0 or told, count)
end

-- The value behind a name in {name, value, …}, as replies have it, or nil.
local function member(pairs_of, name)
  for i = 1, #pairs_of, 2 do
    if pairs_of[i] == name then
      return pairs_of[i + 1]
    end
  end
end

-- What Redis knows of a stream's group as a whole, or nil where there is none; costs the same with any number of
-- consumers, which XPENDING's summary does not.
local function group_of(stream, group)
  local reply = redis.pcall('XINFO', 'GROUPS', stream)
  for _, each in ipairs(reply.err and {} or reply) do
    local about = {}
    for i = 1, #each, 2 do
      about[each[i]] = each[i + 1]
    end
    if about.name == group then
      return about
    end
  end
end

-- The consumers of a stream's group, each with its name, pending and idle; none where there is no group.
local function consumers_of(stream, group)
  local reply, found = redis.pcall('XINFO', 'CONSUMERS', stream, group), {}
  for _, consumer in ipairs(reply.err and {} or reply) do
    local about = {}
    for i = 1, #consumer, 2 do
      about[consumer[i]] = consumer[i + 1]
    end
    table.insert(found, about)
  end
  return found
end

-- The server's clock may be set, and durations and leases must not notice: a clock of our own goes on from call
-- to call by what the server's has advanced since the last one, and never back. Workers call each second or
-- more often. After a longer pause (the server was frozen, its clock was set forward, or no worker ran)
-- leases seem to have lapsed that no worker could renew; `settles` is until when those that live may do so.
-- lease: ms. Returns seconds since 1970 as text and as number, our clock in ms, and whether it still settles.
local LONGEST_SILENCE = 2000
local function tick(lease)
  expect(CLOCK, 'hash')
  local time = redis.call('TIME')
  local wall = time[1] * 1000 + math.floor(time[2] / 1000)
  local kept = redis.call('HMGET', CLOCK, 'wall', 'elapsed', 'settles')
  local last, elapsed, settles = number(kept[1]), number(kept[2]), number(kept[3]) or 0
  local step = last and elapsed and math.max(0, wall - last) or 0
  elapsed = (last and elapsed or wall) + step
  if step > LONGEST_SILENCE then
    settles = elapsed + math.floor(lease / 4)
  end
  -- Not kept where Redis is full: those who only read are answered all the same.
  redis.pcall('HSET', CLOCK, 'wall', string.format('%d', wall), 'elapsed', string.format('%d', elapsed),
    'settles', string.format('%d', settles))
  return {text = time[1] .. '.' .. string.format('%06d', time[2]), seconds = tonumber(time[1]),
    ms = elapsed, is_settling = elapsed < settles}
end

-- Counts something for /metrics, in the very step in which it happens: once, however many workers ask.
local function count(name, amount)
  expect(COUNTS, 'hash')
  redis.call('HINCRBY', COUNTS, name, amount or 1)
end

-- Upper bounds of the histograms' buckets, in seconds; app/operations/service_figures.py has the same.
local BOUNDS = {'0.05', '0.1', '0.25', '0.5', '1', '2.5', '5', '10', '30', '60', '150', '300', '900', '3600'}
local function count_seconds(stage, seconds)
  local within = '+Inf'
  for i = #BOUNDS, 1, -1 do
    within = seconds <= tonumber(BOUNDS[i]) and BOUNDS[i] or within
  end
  count('seconds:' .. stage .. ':' .. within)
  count('ms:' .. stage, math.floor(seconds * 1000 + 0.5))
end

local function count_since_created(record, stage, ms)
  local created = number(redis.call('HGET', record, 'created_ms'))
  if created and ms then
    count_seconds(stage, math.max(0, ms - created) / 1000)
  end
end

-- Counts a job that ends now; ms: by our clock. measured: '' or JSON, `seconds` by stage and whether the error is
-- `about_media`. How long canceled jobs took is not counted.
local function count_end(record, state, ms, reason, measured)
  count('ended:' .. state)
  if state == 'canceled' then
    return
  end
  local is_read, about = pcall(cjson.decode, measured)
  about = is_read and type(about) == 'table' and about or {}
  if state == 'failed' then
    local is_error, error = pcall(cjson.decode, reason)
    local code = is_error and type(error) == 'table' and tostring(error.code) or 'unknown'
    count('failed:' .. code)
    if about.about_media then
      count('rejected:' .. code)
    end
  end
  for stage, seconds in pairs(type(about.seconds) == 'table' and about.seconds or {}) do
    if number(seconds) then
      count_seconds(stage, number(seconds))
    end
  end
  count_since_created(record, 'queue', number(redis.call('HGET', record, 'started_ms')))
  count_since_created(record, 'total', ms)
end

-- The index of jobs (app/jobs/job_index.py): sorted sets of ids by microseconds of creation, one of all, one a
-- state, one an owner, and a hash from ids to owners, which a record that has vanished tells no more.
local STATES = {'queued', 'running', 'succeeded', 'failed', 'canceled', 'expired'}

local function add_to_index(key, score, id)
  expect(key, 'zset')
  return redis.call('ZADD', key, score, id)
end

local function remove_from_index(id)
  expect(INDEX .. ':owners', 'hash')
  local owner = redis.call('HGET', INDEX .. ':owners', id)
  if owner then
    redis.pcall('ZREM', INDEX .. ':owner:' .. owner, id)
    redis.call('HDEL', INDEX .. ':owners', id)
  end
  for _, state in ipairs(STATES) do
    redis.pcall('ZREM', INDEX .. ':state:' .. state, id)
  end
  redis.pcall('ZREM', INDEX, id)
end

local function add_owner_to_index(score, id, owner)
  if type(owner) == 'string' then
    add_to_index(INDEX .. ':owner:' .. owner, score, id)
    expect(INDEX .. ':owners', 'hash')
    redis.call('HSET', INDEX .. ':owners', id, owner)
  end
end

-- Puts a job where its record says that it belongs; to be called whenever its state has changed.
local function index_job(record, id)
  local found = is_hash(record) and redis.call('HMGET', record, 'state', 'created_at', 'submission') or {}
  local state, created = found[1], number(found[2])
  if not state or not created then
    remove_from_index(id)
    return
  end
  local score = string.format('%.0f', created * 1e6)
  if add_to_index(INDEX, score, id) == 1 then
    add_owner_to_index(score, id, decoded(found[3]).owner)
  end
  for _, other in ipairs(STATES) do
    if other == state then
      add_to_index(INDEX .. ':state:' .. state, score, id)
    else
      redis.pcall('ZREM', INDEX .. ':state:' .. other, id)
    end
  end
end

-- What waits in a stream is taken by turns (lua/take.lua), a lane after the other: `<stream>:lanes` has the lanes by
-- the number of the turn that each had last, `<stream>:lane:<lane>` the entries of one by their age. An owner has a
-- lane, and others for what has to be fetched first, '<owner>+url', and for films that gave way, '<owner>+film'.
local WAKE = string.gsub(CLOCK, 'clock$', 'wake')
local WAKES = 8  -- tokens that are kept: who was woken for nothing costs little

local function wake_one()
  expect(WAKE, 'list')
  redis.call('LPUSH', WAKE, 1)
  redis.call('LTRIM', WAKE, 0, WAKES - 1)
end

local function next_turn()
  return redis.call('HINCRBY', CLOCK, 'turn', 1)
end

-- Has an entry wait in its lane. A lane in which nothing waited has its turn after all others.
local function add_to_lane(stream, lane, entry)
  local ms, number = string.match(entry, '^(%d+)-(%d+)$')
  local key = stream .. ':lane:' .. lane
  expect(key, 'zset')
  expect(stream .. ':lanes', 'zset')
  if redis.call('EXISTS', key) == 0 or not redis.call('ZSCORE', stream .. ':lanes', lane) then
    redis.call('ZADD', stream .. ':lanes', next_turn(), lane)
  end
  redis.call('ZADD', key, string.format('%.0f', ms * 1000 + math.min(number, 999)), entry)
end

-- Puts a job at the end of a lane of its owner and wakes a worker that waits; returns the new entry. kind: what the
-- lane's name ends with, nil to go by the record.
local function enqueue(stream, record, id, kind)
  local told = decoded(redis.call('HGET', record, 'submission'))
  local owner = type(told.owner) == 'string' and told.owner or ''
  local lane = owner .. (kind or type(told.source_url) == 'string' and '+url' or '')
  local entry = redis.call('XADD', stream, '*', 'job', id, 'lane', lane)
  add_to_lane(stream, lane, entry)
  wake_one()
  return entry
end

-- Takes an entry out of its stream, whoever has it, and out of its lane.
local function remove_entry(stream, group, entry)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  local lane = found and member(found[2], 'lane')
  if lane then
    redis.pcall('ZREM', stream .. ':lane:' .. lane, entry)
  end
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
end

-- Writes the record of a new job and its entry in the stream. created_at: seconds since 1970 as text; created_ms: by
-- our clock; fields: what the submitter knows, {field, value, …}.
local function accept(record, stream, id, created_at, created_ms, fields)
  redis.call('HSET', record,
    'id', id, 'state', 'queued', 'created_at', created_at, 'created_ms', string.format('%d', created_ms),
    'attempt', 0, 'token', 0, 'progress', 0, unpack(fields))
  redis.call('HSET', record, 'entry', enqueue(stream, record, id))
  index_job(record, id)
  tell((string.gsub(record, ':job:', ':events:', 1)), record)
  count('accepted')
end

-- Notes jobs of an owner who may have `most` that are not over, or any number where that is 0; false where they
-- would be too many. Jobs leave the set when it is full, and not as they end: however one ended, or was lost, it
-- counts no longer.
local function takes_more(active, records, most, ids)
  if most == 0 then
    return true
  end
  expect(active, 'set')
  if redis.call('SCARD', active) + #ids > most then
    for _, id in ipairs(redis.call('SMEMBERS', active)) do
      local state = is_hash(records .. id) and redis.call('HGET', records .. id, 'state')
      if state ~= 'queued' and state ~= 'running' then
        redis.call('SREM', active, id)
      end
    end
  end
  if redis.call('SCARD', active) + #ids > most then
    return false
  end
  redis.call('SADD', active, unpack(ids))
  return true
end

-- Whether an idempotency key stands for something already, or another request has it reserved; '' is no key.
local function is_taken(key, token)
  if key == '' then
    return false
  end
  expect(key, 'hash')
  local kept = redis.call('HMGET', key, 'token', 'id')
  return kept[2] or kept[1] and kept[1] ~= token
end

-- Makes an idempotency key stand for what `record` holds, for so many seconds at most.
local function stand_for(key, token, id, record, fingerprint, seconds)
  if key ~= '' then
    redis.call('HSET', key, 'token', token, 'id', id, 'record', record, 'fingerprint', fingerprint)
    redis.call('EXPIRE', key, seconds)
  end
end
