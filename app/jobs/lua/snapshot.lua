-- Reads who waits, in the order in which they will be taken, and who runs. Changes nothing.
-- KEYS  1…n-3 streams, the most urgent first   n-2 recent runs   n-1 clock   n dead letters
-- ARGV  1 group   2 the consumer of what was handed back   3 most jobs named in all
--       4 what a job's key begins with
-- Returns {jobs handed back}, {{last entry given out, how many wait, {entry, job, …}}, … a stream each},
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
    local job = found and job_of(found[2])
    if job and held[2] == nobody then
      table.insert(handed_back, job)
    elseif job then
      add_running(job)
    end
  end
end

local function last_given(stream)
  local about = group_of(stream, group)
  if about then
    return about['last-delivered-id'], about.pending
  end
  return '0-0', 0
end

for k = 1, streams do
  local stream = KEYS[k]
  local last, total, entries = '0-0', 0, {}
  if redis.call('TYPE', stream).ok == 'stream' then
    read_pending(stream)
    local pending
    last, pending = last_given(stream)
    total = redis.call('XLEN', stream) - pending
    for _, entry in ipairs(most > 0 and redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', most) or {}) do
      table.insert(entries, entry[1])
      table.insert(entries, job_of(entry[2]) or '')
    end
    most = most - #entries / 2
  end
  table.insert(waiting, {last, total, entries})
end
local runs = redis.call('TYPE', KEYS[streams + 1]).ok == 'list' and redis.call('LRANGE', KEYS[streams + 1], 0, -1) or {}
return {handed_back, waiting, running, runs}
