#!lua flags=no-writes
-- Finds the next jobs of a list, newest first, behind a place in it.
-- KEYS  1 clock   2 dead letters
-- ARGV  1 what a job's key begins with   2 most jobs   3 most records that are looked at
--       4 the place: microseconds of creation, or +inf   5 and the id of the job there, or ''
--       6 earliest creation, as ZRANGE takes it   7 states, JSON, [] for any   8 owner, or ''
--       9 batch, or ''   10 a batch's set of jobs, or ''   11 captioner, or ''
-- Returns {{microseconds, id} of where the next page begins, both '' at the end; {id, …}; {id, …} of jobs whose
-- place in the index is not what their record says}

local prefix, most, budget = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local place = {score = ARGV[4], id = ARGV[5]}
local earliest, states = ARGV[6], cjson.decode(ARGV[7])
local owner, batch, batch_set, captioner = ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local CHUNK = 200
local ANSWER_COSTS = 10  -- records: an answer has up to 64 KiB
local wanted = {}
for _, state in ipairs(states) do
  wanted[state] = true
end

local function size(sets)
  local total = 0
  for _, key in ipairs(sets) do
    local count = redis.pcall('ZCARD', key)
    total = total + (type(count) == 'number' and count or 0)
  end
  return total
end

-- The sets that together have all that is wanted and least beside it, and whether they are states'.
local function smallest_sets()
  if batch ~= '' then
    return {batch_set}, false
  end
  local by_state = {}
  for _, state in ipairs(states) do
    table.insert(by_state, INDEX .. ':state:' .. state)
  end
  local by_owner = {INDEX .. ':owner:' .. owner}
  if owner ~= '' and (#states == 0 or size(by_owner) <= size(by_state)) then
    return by_owner, false
  end
  return #states > 0 and by_state or {INDEX}, #states > 0
end

-- Whether a job comes before another, newest first; ids decide between those of the same microsecond.
local function is_before(one, other)
  if one.score ~= other.score then
    return one.score > other.score
  end
  return one.id > other.id
end

-- Reads a set from its newest job behind the place on; gives its next job without taking it, or nil.
local function reader(key)
  local self = {taken = 0, buffer = {}, at = 1, is_whole = redis.call('TYPE', key).ok ~= 'zset'}
  local function fill()
    local found = redis.call('ZRANGE', key, place.score, earliest, 'BYSCORE', 'REV',
      'LIMIT', self.taken, CHUNK, 'WITHSCORES')
    self.buffer, self.at, self.taken = {}, 1, self.taken + #found / 2
    self.is_whole = #found < 2 * CHUNK
    for i = 1, #found, 2 do
      local one = {id = found[i], score = tonumber(found[i + 1])}
      if place.id == '' or is_before({score = tonumber(place.score), id = place.id}, one) then
        table.insert(self.buffer, one)
      end
    end
  end
  function self.next()
    while self.at > #self.buffer and not self.is_whole do
      fill()
    end
    return self.buffer[self.at]
  end
  return self
end

local readers, spent, strays = {}, 0, {}
local sets, is_by_state = smallest_sets()
for _, key in ipairs(sets) do
  table.insert(readers, reader(key))
end

local function newest_head()
  local newest, from
  for _, each in ipairs(readers) do
    local head = each.next()
    if head and (not newest or is_before(head, newest)) then
      newest, from = head, each
    end
  end
  return newest, from
end

local function is_captioned_by(record, options)
  local chosen = decoded(options).captioner
  if not chosen then  -- sent while no worker lived: the one that took it chose
    spent = spent + ANSWER_COSTS
    local model = decoded(redis.call('HGET', record, 'answer')).model
    chosen = type(model) == 'table' and model.captioner
  end
  return chosen == captioner
end

-- Whether the record, which alone is the truth, says what is asked for.
local function is_wanted(id)
  local record = prefix .. id
  local found = is_hash(record) and redis.call('HMGET', record, 'state', 'submission', 'options') or {}
  local has_state = found[1] and (#states == 0 or wanted[found[1]])
  if not found[1] or is_by_state and not has_state then
    table.insert(strays, id)
  end
  if not has_state then
    return false
  end
  local told = (owner ~= '' or batch ~= '') and decoded(found[2]) or {}
  return (owner == '' or told.owner == owner) and (batch == '' or told.batch == batch)
    and (captioner == '' or is_captioned_by(record, found[3]))
end

local place_behind, page = {'', ''}, {}
local head, from = newest_head()
while head and #page < most and spent < budget do
  from.at, spent = from.at + 1, spent + 1
  if is_wanted(head.id) then
    table.insert(page, head.id)
  end
  place_behind = {string.format('%.0f', head.score), head.id}
  head, from = newest_head()
end
return {head and place_behind or {'', ''}, page, strays}
