#!lua flags=allow-oom
-- Frees an idempotency key, of which a request has made nothing.
-- KEYS  1 key   2 clock   3 dead letters
-- ARGV  1 token of the request
-- Returns 1, or 0 where the key is another's.

if not is_hash(KEYS[1]) or redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
