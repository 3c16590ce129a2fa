-- Stands before every script: the service's clock, and keys that hold something of another type.
-- The last two of every script's KEYS are the clock (a hash) and the dead letters (a hash).

local CLOCK, DEAD = KEYS[#KEYS - 1], KEYS[#KEYS]
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

-- The job that a stream entry names, or nil.
local function job_of(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'job' then
      return fields[i + 1]
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
-- more often. After a longer pause (the server was frozen, its clock was set forward, or nobody was there)
-- leases seem to have lapsed that nobody could renew; `settles` is until when those who live may do so.
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

-- The index of jobs (app/jobs/job_index.py): sorted sets of ids by microseconds of creation, one of all, one a
-- state, one an owner, and a hash from ids to owners, which a record that has vanished tells no more.
local STATES = {'queued', 'running', 'succeeded', 'failed', 'canceled', 'expired'}

local function add_to_index(key, score, id)
  expect(key, 'zset')
  return redis.call('ZADD', key, score, id)
end

local function decoded(text)
  local is_read, value = pcall(cjson.decode, text or '')
  return is_read and type(value) == 'table' and value or {}
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

-- Writes the record of a new job and its entry in the stream. created_at: seconds since 1970 as text; created_ms: by
-- our clock; fields: what the submitter knows, {field, value, …}.
local function accept(record, stream, id, created_at, created_ms, fields)
  redis.call('HSET', record,
    'id', id, 'state', 'queued', 'created_at', created_at, 'created_ms', string.format('%d', created_ms),
    'attempt', 0, 'token', 0, 'progress', 0, unpack(fields))
  redis.call('HSET', record, 'entry', redis.call('XADD', stream, '*', 'job', id))
  index_job(record, id)
end
