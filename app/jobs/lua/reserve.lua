-- Reserves an idempotency key for a request, renews that, or tells what the key stands for already.
-- KEYS  1 key   2 clock   3 dead letters
-- ARGV  1 token of the request   2 how long the reservation lasts, ms
-- Returns {'reserved'}, {'busy'} (another request has it), or {'kept', id, fingerprint}.

local key = KEYS[1]
expect(key, 'hash')
local kept = redis.call('HMGET', key, 'token', 'id', 'record', 'fingerprint')
if kept[2] then
  local is_there = is_hash(kept[3]) and redis.call('HGET', kept[3], 'state') ~= 'expired'
  if is_there then
    return {'kept', kept[2], kept[4]}
  end
  redis.call('DEL', key)
elseif kept[1] and kept[1] ~= ARGV[1] then
  return {'busy'}
end
redis.call('HSET', key, 'token', ARGV[1])
redis.call('PEXPIRE', key, ARGV[2])
return {'reserved'}
