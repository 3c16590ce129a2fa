-- Begins attempts at deliveries that are due, of each owner one by turns, so that who has many delays no other. Each
-- is due again when its lease has lapsed, so that another process makes the next attempt should this one die. Where more
-- are due than are looked at, those whose owner has its share are due some seconds later: the next look meets others.
-- KEYS  1 deliveries by due time   2 owners of jobs by their ids (app/jobs/lua/common.lua)
-- ARGV  1 what a delivery's key begins with   2 lease, ms   3 most   4 attempts under way by owner, JSON
--       5 most of one owner, those under way with them; who needs no key shares all
-- Returns {{job, attempt, id, url, body, type, owner}, …}

local EXAMINED, PAGE = 5000, 1000
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local under_way, most, most_of_one = cjson.decode(ARGV[4]), tonumber(ARGV[3]), tonumber(ARGV[5])

local function owners_of(jobs)
  local reply = redis.pcall('HMGET', KEYS[2], unpack(jobs))
  return reply.err and {} or reply
end

-- Those that are due, by the number that each has among its owner's: first all first ones, then all second ones, …
local rounds, passed = {}, {}
for start = 0, EXAMINED - 1, PAGE do
  local jobs = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', start, PAGE)
  if #jobs == 0 then
    break
  end
  local owners = owners_of(jobs)
  for k, job in ipairs(jobs) do
    local owner = owners[k] or ''
    local number = (under_way[owner] or 0) + 1
    if number <= (owner == '' and most or most_of_one) then
      under_way[owner] = number
      rounds[number] = rounds[number] or {}
      table.insert(rounds[number], {job, owner})
    else
      table.insert(passed, job)
    end
  end
end
if redis.call('ZCOUNT', KEYS[1], '-inf', now) > EXAMINED then
  for k, job in ipairs(passed) do
    redis.call('ZADD', KEYS[1], now + k, job)
  end
end

local begun = {}
for number = 1, math.max(most, most_of_one) do
  for _, each in ipairs(rounds[number] or {}) do
    local job, key = each[1], ARGV[1] .. each[1]
    local kept = #begun < most and redis.call('HMGET', key, 'id', 'url', 'body', 'type')
    if kept and kept[1] and kept[2] and kept[3] then
      redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), job)
      table.insert(begun, {job, redis.call('HINCRBY', key, 'attempt', 1), kept[1], kept[2], kept[3], kept[4] or '', each[2]})
    elseif kept then
      redis.call('ZREM', KEYS[1], job)
    end
  end
end
return begun
