#!lua flags=allow-oom
-- Takes a worker's own consumer off the streams, unless it still has entries: those would be lost with it.
-- KEYS  1…n-2 streams   n-1 clock   n dead letters
-- ARGV  1 group   2 the consumer
-- Returns from how many streams.

local group, me = ARGV[1], ARGV[2]
local removed = 0
for k = 1, #KEYS - 2 do
  for _, consumer in ipairs(consumers_of(KEYS[k], group)) do
    if consumer.name == me and consumer.pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', KEYS[k], group, me)
      removed = removed + 1
    end
  end
end
return removed
