-- Reads who waits, in the order in which they will be taken, and who runs. Changes nothing.
-- KEYS  1…n-3 streams, the most urgent first   n-2 recent runs   n-1 clock   n dead letters
-- ARGV  1 group   2 the consumer of what was handed back   3 most jobs named in all
--       4 what a job's key begins with
-- Returns {jobs handed back}, {{last entry that was put in, how many wait, {job, …}}, … a stream each},
--   {{worker, ms since it began, progress}, … of what runs}, {recent run, …}

local group, nobody, most, job_prefix = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local streams = #KEYS - 3
local PAGE = 200  -- entries in workers' hands that are looked at, in each stream
local handed_back, waiting, running = {}, {}, {}
local now = number(redis.call('TYPE', CLOCK).ok == 'hash' and redis.call('HGET', CLOCK, 'elapsed')) or 0

local function add_running(job)
  local record = job_prefix .. job
  if is_hash(record) and redis.call('HGET', record, 'state') == 'running' then
    local kept = redis.call('HMGET', record, 'worker', 'claimed_ms', 'progress')
    local began = number(kept[2]) or now
    table.insert(running, {kept[1] or '', string.format('%d', math.max(0, now - began)), kept[3] or '0'})
  end
end

local function read_pending(stream)
  local pending = redis.pcall('XPENDING', stream, group, '-', '+', PAGE)
  for _, held in ipairs(pending.err and {} or pending) do
    local found = redis.call('XRANGE', stream, held[1], held[1])[1]
    local job = found and member(found[2], 'job')
    if job and held[2] == nobody then
      table.insert(handed_back, job)
    elseif job then
      add_running(job)
    end
  end
end

-- The jobs that wait in a stream, up to `limit`, as take.lua takes them: of each lane the first, then the second, …
local function in_turn(stream, limit)
  local lanes, jobs, round, is_any = {}, {}, 1, true
  for _, lane in ipairs(redis.pcall('ZRANGE', stream .. ':lanes', 0, limit)) do
    table.insert(lanes, redis.call('ZRANGE', stream .. ':lane:' .. lane, 0, limit))
  end
  while is_any and #jobs < limit do
    is_any = false
    for _, entries in ipairs(lanes) do
      local found = entries[round] and #jobs < limit and redis.call('XRANGE', stream, entries[round], entries[round])[1]
      if found then
        table.insert(jobs, member(found[2], 'job') or '')
      end
      is_any = is_any or entries[round] ~= nil
    end
    round = round + 1
  end
  return jobs
end

for k = 1, streams do
  local stream = KEYS[k]
  local last, total, entries = '0-0', 0, {}
  if redis.call('TYPE', stream).ok == 'stream' then
    read_pending(stream)
    last = member(redis.call('XINFO', 'STREAM', stream), 'last-generated-id')
    total = redis.call('XLEN', stream) - (group_of(stream, group) or {pending = 0}).pending
    entries = in_turn(stream, most)
    most = most - #entries
  end
  table.insert(waiting, {last, total, entries})
end
local runs = redis.call('TYPE', KEYS[streams + 1]).ok == 'list' and redis.call('LRANGE', KEYS[streams + 1], 0, -1) or {}
return {handed_back, waiting, running, runs}
