-- In front of every script of an application, which becomes the body of the function below: there KEYS and ARGV are its
-- own. KEYS[1] is <base>meta, the others are the application's. ARGV: what all its names begin with, one letter for each
-- value (`n` for one that is missing), the values.
local own, values = {}, {}
for i = 2, #KEYS do own[i - 1] = KEYS[i] end
for i = 3, #ARGV do values[i - 2] = string.sub(ARGV[2], i - 2, i - 2) ~= 'n' and ARGV[i] end

-- The full name of one more key of the application.
local function key(name)
  return ARGV[1] .. name
end

local function application(KEYS, ARGV)
