#!lua flags=allow-oom
-- Ends the leases of a worker that is known to be dead, so that its jobs run again without waiting for them.
-- KEYS  1…n-3 streams   n-2 names of workers   n-1 clock   n dead letters
-- ARGV  1 group   2 what the dead worker's name begins with   3 a worker that lives, or ''
--       4 what a job's key begins with   5 what a worker's key begins with
-- Returns how many jobs it had.

local group, dead, me, job_prefix, worker_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local streams = #KEYS - 3
local PAGE = 100

local function release(stream, entry, name)
  local found = redis.call('XRANGE', stream, entry, entry)[1]
  local job = found and member(found[2], 'job')
  local record = job and job_prefix .. job
  if not record or not is_hash(record) then
    return 0
  elseif redis.call('HGET', record, 'state') == 'running' and redis.call('HGET', record, 'worker') ~= name then
    return 0
  end
  -- 0 rather than the present: it has lapsed whatever the clock does, and take.lua reads both
  redis.call('HSET', record, 'lease', 0, 'offered', 0)
  return 1
end

local function release_all(stream, name)
  local count, from = 0, '-'
  while from do
    local page = redis.call('XPENDING', stream, group, from, '+', PAGE, name)
    from = #page == PAGE and '(' .. page[PAGE][1] or nil
    for _, held in ipairs(page) do
      count = count + release(stream, held[1], name)
    end
  end
  return count
end

local released = 0
for k = 1, streams do
  for _, consumer in ipairs(consumers_of(KEYS[k], group)) do
    local name = consumer.name
    if name ~= me and string.sub(name, 1, #dead) == dead then
      released = released + release_all(KEYS[k], name)
      redis.pcall('ZREM', KEYS[streams + 1], name)
      redis.pcall('ZREM', KEYS[streams + 1] .. ':ready', name)
      redis.call('DEL', worker_prefix .. name)
    end
  end
end
-- else the next worker that asks may find that another has looked for abandoned jobs a moment ago
redis.pcall('HDEL', CLOCK, 'looked')
return released
