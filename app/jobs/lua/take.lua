#!lua flags=allow-oom
-- Gives a worker its share of the jobs: first those that another had and has no more, else those that wait, the most
-- urgent stream first and in it one of each lane by turns (lua/common.lua).
-- KEYS  1…n-3 streams, the most urgent first   n-2 names of workers   n-1 clock   n dead letters
-- ARGV  1 group   2 worker   3 most jobs   4 lease, ms   5 attempts allowed
--       6 what a job's key begins with   7 how often abandoned jobs are looked for by all workers together, ms
--       8 2 to look for them now, 1 where no worker has for so long, 0 not to
--       9 1 where the worker is at work, and takes jobs to be read ahead
--       10 lanes that nothing is taken of, JSON   11 endings of other such lanes, JSON
-- Returns {{stream's number, entry, 1 where another had it, {field, value, …}}, …}

local group, me, most, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local allowed, job_prefix, interval = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local streams = #KEYS - 3
local ready = KEYS[streams + 1] .. ':ready'  -- lua/advertise.lua
local is_ahead = ARGV[9] == '1'
local PAGE = 100
local FEW = 64  -- workers; among more, what a dead one has in hand weighs little, and they are not asked one by one

for k = 1, streams do
  expect(KEYS[k], 'stream')
end
expect(ready, 'zset')
local now = tick(lease)

local waiting, given = 0, 0
for k = 1, streams do
  local pending = (group_of(KEYS[k], group) or {pending = 0}).pending
  waiting, given = waiting + redis.call('XLEN', KEYS[k]) - pending, given + pending
end

local since = now.is_settling and '-inf' or '(' .. string.format('%d', now.ms)
local live = math.max(1, redis.call('ZCOUNT', ready, since, '+inf'))  -- workers that take jobs

-- Those, with how many each has in hand.
local function loads()
  local found = {[me] = 0}
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', ready, since, '+inf')) do
    found[name] = 0
  end
  for k = 1, streams do
    for _, consumer in ipairs(consumers_of(KEYS[k], group)) do
      if found[consumer.name] then
        found[consumer.name] = found[consumer.name] + consumer.pending
      end
    end
  end
  return found
end

-- Whether an entry that was given to `holder` is to be given to another. Leases are the records', since the
-- idle times that streams keep go by the server's clock. A job that was given and never begun gets a lease
-- (`offered`) when it is first seen.
local function is_abandoned(record, holder)
  local state = redis.call('HGET', record, 'state')
  local offered = number(redis.call('HGET', record, 'offered'))
  if state == 'running' and now.is_settling then
    return false
  elseif state == 'running' then
    local lapses = number(redis.call('HGET', record, 'lease')) or 0
    return math.max(lapses, offered or 0) <= now.ms
  elseif state ~= 'queued' or holder == 'nobody' then
    return true
  elseif not offered then
    redis.call('HSET', record, 'offered', string.format('%d', now.ms + lease))
    return false
  end
  return offered <= now.ms
end

-- An abandoned entry, or nil. is_last: no attempt would be left to it after the next one.
local function abandoned(k, entry, holder)
  local found = redis.call('XRANGE', KEYS[k], entry, entry)[1]
  if not found then
    redis.call('XACK', KEYS[k], group, entry)
    return nil
  end
  local job = member(found[2], 'job')
  local record = job and job_prefix .. job
  if not record or not is_hash(record) then
    return {k, entry, 1, found[2]}, false
  elseif is_abandoned(record, holder) then
    local attempt = (number(redis.call('HGET', record, 'attempt')) or 0) - redis.call('HEXISTS', record, 'gained')
      - (redis.call('HGET', record, 'working') == '0' and 1 or 0)
    return {k, entry, 1, found[2]}, attempt + 1 >= allowed, record
  end
end

-- All abandoned entries, up to `limit`: {offer, is_last, record}.
local function look(limit)
  local found = {}
  for k = 1, streams do
    local from = '-'
    while from and #found < limit do
      local page = redis.call('XPENDING', KEYS[k], group, from, '+', PAGE)
      from = #page == PAGE and '(' .. page[PAGE][1] or nil
      for _, held in ipairs(page) do
        local offer, is_last, record = abandoned(k, held[1], held[2])
        if offer and #found < limit then
          table.insert(found, {offer = offer, is_last = is_last, record = record})
        end
      end
    end
  end
  return found
end

-- Whether another worker has nothing to do: what is there is left to it.
local function is_another_idle()
  if live > FEW then
    return given < live
  end
  for name, load in pairs(loads()) do
    if name ~= me and load == 0 then
      return true
    end
  end
  return false
end

-- They go to idle workers in equal parts. A job's last attempt is made alone: should it kill the worker, no
-- other pays for it. Returns them, and whether nothing else may be taken: a worker at work leaves the last
-- attempt until it has nothing else.
local function share_of_abandoned()
  local found = look(live * most)
  if #found == 0 then
    redis.pcall('HSET', CLOCK, 'looked', string.format('%d', now.ms))
    return {}
  end
  local idle = 0
  for _, load in pairs(loads()) do
    idle = idle + (load == 0 and 1 or 0)
  end
  local share = math.min(most, math.ceil(#found / math.max(idle, 1)))
  local taken = {}
  if is_ahead and found[1] and found[1].is_last then
    return {}, true
  end
  for _, each in ipairs(found) do
    if #taken == share or #taken > 0 and each.is_last then
      break
    end
    redis.call('XCLAIM', KEYS[each.offer[1]], group, me, 0, each.offer[2], 'JUSTID')
    if each.record then
      redis.call('HSET', each.record, 'offered', string.format('%d', now.ms + lease))
    end
    table.insert(taken, each.offer)
    if each.is_last then
      break
    end
  end
  return taken, false
end

-- How many this worker has in hand, how many all have, and how many they are.
local function loads_of_all()
  if live > FEW then
    local mine = 0
    for k = 1, streams do
      mine = mine + #redis.call('XPENDING', KEYS[k], group, '-', '+', most, me)
    end
    return mine, given, live
  end
  local found, total, count = loads(), 0, 0
  for _, load in pairs(found) do
    total, count = total + load, count + 1
  end
  return found[me], total, count
end

-- As many as bring this worker to what all would have in hand if those that wait were dealt out evenly; one
-- at least where it is idle. What is left over goes to the worker that is free first.
local function share_of_waiting()
  if waiting == 0 or not is_ahead and (waiting == 1 or most == 1) then
    return 1
  end
  local mine, in_hand, count = loads_of_all()
  return math.max(is_ahead and 0 or 1, math.min(most, math.floor((waiting + in_hand) / count) - mine))
end

local passed_over = {}
for _, lane in ipairs(decoded(ARGV[10])) do
  passed_over[lane] = true
end

local passed_endings = decoded(ARGV[11])
local function is_passed_over(lane)
  for _, ending in ipairs(passed_endings) do
    if string.sub(lane, -#ending) == ending then
      return true
    end
  end
  return passed_over[lane]
end

local function is_in_hand(stream, entry)
  return #redis.call('XPENDING', stream, group, entry, entry, 1) > 0
end

-- Entries behind the group's place in a stream. What is there was put in since, or was taken out of its order.
local function behind(stream)
  local about = group_of(stream, group)
  return about and redis.call('XRANGE', stream, '(' .. about['last-delivered-id'], '+', 'COUNT', PAGE) or {}
end

-- Moves the group's place on to the first entry that no worker has.
local function move_on(stream)
  local place
  for _, entry in ipairs(behind(stream)) do
    if not is_in_hand(stream, entry[1]) then
      break
    end
    place = entry[1]
  end
  if place then
    redis.call('XGROUP', 'SETID', stream, group, place)
  end
end

-- Has entries wait in lanes that are in none: a version without lanes has put them in, or a lane was deleted.
local function mend_lanes(stream)
  local is_mended = false
  for _, entry in ipairs(behind(stream)) do
    local lane = member(entry[2], 'lane') or ''
    local is_waiting = redis.call('ZSCORE', stream .. ':lanes', lane)
      and redis.call('ZSCORE', stream .. ':lane:' .. lane, entry[1])
    if not is_waiting and not is_in_hand(stream, entry[1]) then
      add_to_lane(stream, lane, entry[1])
      is_mended = true
    end
  end
  return is_mended
end

-- Takes up to `limit` entries of a stream, one of each lane by turns.
local function by_turns(k, limit)
  local stream, taken, place = KEYS[k], {}, 0
  local lanes = stream .. ':lanes'
  expect(lanes, 'zset')
  while #taken < limit do
    local lane = redis.call('ZRANGE', lanes, place, place)[1]
    if not lane then
      break
    elseif is_passed_over(lane) then
      place = place + 1
    else
      expect(stream .. ':lane:' .. lane, 'zset')
      local entry = redis.call('ZPOPMIN', stream .. ':lane:' .. lane)[1]
      local found = entry and redis.call('XRANGE', stream, entry, entry)[1]
      if not entry then
        redis.call('ZREM', lanes, lane)
      elseif found and not is_in_hand(stream, entry) then
        redis.call('XCLAIM', stream, group, me, 0, entry, 'FORCE', 'JUSTID')
        redis.call('ZADD', lanes, next_turn(), lane)
        table.insert(taken, {k, entry, 0, found[2]})
      end
    end
  end
  if #taken > 0 then
    move_on(stream)
  end
  return taken
end

-- All that workers have in hand is walked through: one of them does it now and then for all.
local function is_to_look()
  local looked = number(redis.call('HGET', CLOCK, 'looked')) or 0
  return ARGV[8] == '2' or ARGV[8] == '1' and now.ms - looked >= interval
end

local looks = is_to_look()
if is_ahead and (waiting == 0 and not looks or is_another_idle()) then
  return {}
end

if looks then
  local taken, is_all = share_of_abandoned()
  if #taken > 0 or is_all then
    return taken
  end
end

local share = share_of_waiting()
if share == 0 then
  return {}
end
for k = 1, streams do
  local taken = by_turns(k, share)
  if #taken == 0 and waiting > 0 and mend_lanes(KEYS[k]) then
    taken = by_turns(k, share)
  end
  if #taken > 0 then
    if waiting > #taken and redis.call('LLEN', WAKE) == 0 then
      wake_one()
    end
    return taken
  end
end
return {}
