-- wrk asks for the files in turn; the requests are made once, so that the client's cost stays small.
local requests, at = {}, 0

function init(args)
  for number = 0, tonumber(args[1]) - 1 do
    requests[number] = wrk.format("GET", string.format("/small-%05d", number))
  end
end

function request()
  at = (at + 7919) % (#requests + 1)
  return requests[at]
end
