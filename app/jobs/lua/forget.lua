#!lua flags=allow-oom
-- Removes consumers that have nothing in hand and have been away for long, but for the one whose jobs were
-- handed back: one is given to it at any moment.
-- KEYS  1 stream   2 clock   3 dead letters
-- ARGV  1 group   2 the consumer that is kept   3 how long, ms
-- Returns how many.

local removed = 0
for _, consumer in ipairs(consumers_of(KEYS[1], ARGV[1])) do
  if consumer.pending == 0 and consumer.idle > tonumber(ARGV[3]) and consumer.name ~= ARGV[2] then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
    removed = removed + 1
  end
end
return removed
