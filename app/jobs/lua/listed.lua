#!lua flags=allow-oom
-- The workers that live: those whose advertisement has lapsed neither by our clock nor by the server's.
-- KEYS  1 names of workers   2 clock   3 dead letters
-- ARGV  1 what a worker's key begins with   2 how long an advertisement lasts, ms
-- Returns {name, advertisement, …}

if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  return {}
end
local now, found = tick(tonumber(ARGV[2])), {}
local names = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #names, 2 do
  local name, lapses = names[i], tonumber(names[i + 1])
  local is_known = lapses > 1e11  -- else seconds, as versions before this clock wrote them
  local text = (not is_known or now.is_settling or lapses > now.ms) and redis.pcall('GET', ARGV[1] .. name)
  if type(text) == 'string' then
    table.insert(found, name)
    table.insert(found, text)
  else
    redis.call('ZREM', KEYS[1], name)
    redis.pcall('ZREM', KEYS[1] .. ':ready', name)
  end
end
return found
