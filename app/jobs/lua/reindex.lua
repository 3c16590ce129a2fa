#!lua flags=allow-oom
-- Puts jobs into the index where their records say, and takes out those whose records are gone.
-- KEYS  1 clock   2 dead letters
-- ARGV  1 what a job's key begins with   2… ids
-- Returns how many.

for i = 2, #ARGV do
  index_job(ARGV[1] .. ARGV[i], ARGV[i])
end
return #ARGV - 1
