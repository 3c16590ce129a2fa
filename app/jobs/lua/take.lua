#!lua flags=allow-oom
-- Gives a worker its share of the jobs: first those that another had and has no more, else those that wait.
-- KEYS  1…n-3 streams, the most urgent first   n-2 names of workers   n-1 clock   n dead letters
-- ARGV  1 group   2 worker   3 most jobs   4 lease, ms   5 attempts allowed
--       6 what a job's key begins with   7 what a worker's key begins with   8 1 to look for abandoned jobs
--       9 1 where the worker is at work, and takes jobs to be read ahead
-- Returns {{stream's number, entry, 1 where another had it, {field, value, …}}, …}

local group, me, most, lease = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local allowed, job_prefix, worker_prefix = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local streams = #KEYS - 3
local workers = KEYS[streams + 1]
local is_ahead = ARGV[9] == '1'
local PAGE = 100

for k = 1, streams do
  expect(KEYS[k], 'stream')
end
expect(workers, 'zset')
local now = tick(lease)

local waiting = 0
for k = 1, streams do
  waiting = waiting + redis.call('XLEN', KEYS[k]) - redis.call('XPENDING', KEYS[k], group)[1]
end

-- Live workers that take jobs, with how many each has in hand.
local function loads()
  local found = {[me] = 0}
  for _, name in ipairs(redis.call('ZRANGE', workers, 0, -1)) do
    local text = redis.pcall('GET', worker_prefix .. name)
    local is_read, info = pcall(cjson.decode, text)
    if is_read and type(info) == 'table' and info.is_ready == true then
      found[name] = 0
    end
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
  local job = job_of(found[2])
  local record = job and job_prefix .. job
  if not record or not is_hash(record) then
    return {k, entry, 1, found[2]}, false
  elseif is_abandoned(record, holder) then
    local attempt = (number(redis.call('HGET', record, 'attempt')) or 0) - redis.call('HEXISTS', record, 'gained')
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
  local idle = 0
  for _, load in pairs(loads()) do
    idle = idle + (load == 0 and 1 or 0)
  end
  idle = math.max(idle, 1)
  local found = look(idle * most)
  local share = math.min(most, math.ceil(#found / idle))
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

-- As many as bring this worker to what all would have in hand if those that wait were dealt out evenly; one
-- at least where it is idle. What is left over goes to whoever is free first.
local function share_of_waiting()
  if waiting == 0 or not is_ahead and (waiting == 1 or most == 1) then
    return 1
  end
  local in_hand, live, mine = 0, 0, 0
  for name, load in pairs(loads()) do
    in_hand, live = in_hand + load, live + 1
    mine = name == me and load or mine
  end
  return math.max(is_ahead and 0 or 1, math.min(most, math.floor((waiting + in_hand) / live) - mine))
end

if is_ahead and (waiting == 0 and ARGV[8] ~= '1' or is_another_idle()) then
  return {}
end

if ARGV[8] == '1' then
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
  local reply = redis.call('XREADGROUP', 'GROUP', group, me, 'COUNT', share, 'STREAMS', KEYS[k], '>')
  if reply then
    local taken = {}
    for _, entry in ipairs(reply[1][2]) do
      table.insert(taken, {k, entry[1], 0, entry[2]})
    end
    return taken
  end
end
return {}
