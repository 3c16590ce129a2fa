#!lua flags=allow-oom
-- Removes consumers that have nothing in hand and have been away for long, but for the one whose jobs were
-- handed back: one is given to it at any moment.
-- KEYS  1 stream   2 clock   3 dead letters
-- ARGV  1 group   2 the consumer that is kept   3 how long, ms
-- Returns how many.

local consumers, removed = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1]), 0
for _, consumer in ipairs(consumers.err and {} or consumers) do
  local about = {}
  for i = 1, #consumer, 2 do
    about[consumer[i]] = consumer[i + 1]
  end
  if about.pending == 0 and about.idle > tonumber(ARGV[3]) and about.name ~= ARGV[2] then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], about.name)
    removed = removed + 1
  end
end
return removed
