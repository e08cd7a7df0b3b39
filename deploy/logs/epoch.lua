-- Give every line of a worker's log its epoch: the guard or supervisor writes one line before each start of a worker.
-- For Fluent Bit's filter `lua` (deploy/logs/fluent-bit.yaml) and Vector's transform `lua` (deploy/logs/vector.yaml).

local LOGS_MAX = 4096 -- a node has some hundred containers; beyond this, all are forgotten until their next start
local epochs, logs = {}, 0

-- Return the epoch of a line, or nil before the first mark. `log` names the container's log, `text` is the line.
function epoch_of(log, text)
    if type(text) == "string" and string.find(text, '"event": "worker_starting"', 1, true) then
        if epochs[log] == nil then
            if logs == LOGS_MAX then
                epochs, logs = {}, 0
            end
            logs = logs + 1
        end
        epochs[log] = tonumber(string.match(text, '"epoch": (%d+)')) or epochs[log]
    end
    return epochs[log]
end

-- Fluent Bit calls this for each record; 2 says that the record changed, and its time did not.
function fluent_bit(tag, timestamp, record)
    record["inplace_epoch"] = epoch_of(tag, record["log"])
    return 2, timestamp, record
end

-- Vector calls this for each event.
function vector(event, emit)
    event.log.inplace_epoch = epoch_of(event.log.file, event.log.message)
    emit(event)
end
