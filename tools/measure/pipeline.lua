-- wrk script: every write carries many requests, back to back (HTTP/1.1 pipelining).
-- The argument behind `--` is how many; wrk counts every answer as one request.

local batch

function init(arguments)
   local depth = tonumber(arguments[1]) or 16
   local request = wrk.format()
   batch = string.rep(request, depth)
end

function request()
   return batch
end
