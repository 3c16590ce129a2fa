-- Stands before schedule and settle. A job's messages go out one after the other: its delivery (a hash) is the message
-- that is being sent, or was sent last, with its `number` among them; those behind it wait in its fields `w<number>`.

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Has the message behind a delivery's last one sent; nothing where it is not there yet. '[]' is none, and passed over.
local function send_next(deliveries, delivery, job)
  local number = tonumber(redis.call('HGET', delivery, 'number')) or 0
  local text
  repeat
    number = number + 1
    text = redis.call('HGET', delivery, 'w' .. number)
    redis.call('HDEL', delivery, 'w' .. number)
  until text ~= '[]'
  redis.call('HSET', delivery, 'number', text and number or number - 1)
  if text then
    redis.call('HSET', delivery, 'state', 'pending', 'attempt', 0, unpack(cjson.decode(text)))
    redis.call('PERSIST', delivery)
    redis.call('ZADD', deliveries, now_ms(), job)
  end
end
