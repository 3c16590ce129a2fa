#!lua flags=allow-oom
-- Puts jobs into the index where their records say, and takes out those whose records are gone. One that is to be
-- taken by its record and stands in no stream, since that was deleted, waits again.
-- KEYS  1 clock   2 dead letters
-- ARGV  1 what a job's key begins with   2… ids
-- Returns how many.

local function mend_entry(record, id)
  local state, entry, priority, dead = unpack(redis.call('HMGET', record, 'state', 'entry', 'priority', 'dead'))
  if (state == 'queued' or state == 'running') and entry and priority and not dead then
    local stream = string.gsub(CLOCK, 'clock$', 'queue:') .. priority
    local reply = redis.pcall('XRANGE', stream, entry, entry)
    if not reply.err and #reply == 0 then
      redis.call('HSET', record, 'entry', enqueue(stream, record, id))
    end
  end
end

for i = 2, #ARGV do
  index_job(ARGV[1] .. ARGV[i], ARGV[i])
  if is_hash(ARGV[1] .. ARGV[i]) then
    mend_entry(ARGV[1] .. ARGV[i], ARGV[i])
  end
end
return #ARGV - 1
