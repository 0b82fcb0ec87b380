-- Lets cranny place batch jobs that opt in: JobSubmitPlugins=lua in slurm.conf, and this file beside it.
--
-- A job opts in by its partition (listed below), by its comment (`sbatch --comment=cranny`, more words may follow), or
-- by the feature `cranny` (`sbatch -C cranny`), which is removed again. It may then not begin for ten years, and has the
-- mark in its AdminComment; cranny sets its node list and lets it begin. Its priority is Slurm's own all the time, as it
-- would not be if it were held. `scontrol update JobId=N StartTime=now` lets a job start without cranny.
--
-- Left alone are jobs without GPUs, heterogeneous jobs, and interactive ones (srun, salloc).

local partitions = {}            -- for instance { gpu = true, long = true }
local mark = "cranny"
local far = 3650 * 24 * 3600     -- seconds

local function set(value)
  return value ~= nil and value ~= "" and value ~= slurm.NO_VAL and value ~= slurm.NO_VAL64
end

local function asks_for_gpus(job)
  for _, field in ipairs({ "tres_per_node", "tres_per_job", "tres_per_task", "gres" }) do
    local value = job[field]
    if set(value) and string.find(value, "gpu") then return true end
  end
  return false
end

local function only_batch(job)
  local interactive = not set(job.script)
  local part = set(job.het_job_offset) and job.het_job_offset ~= slurm.NO_VAL
  return not interactive and not part
end

-- Takes the mark out of `cranny`, `cranny&x` or `x&cranny`; returns the rest, or nil if it is not there.
local function without_mark(features)
  local rest, found = {}, false
  for word in string.gmatch(features, "[^&,]+") do
    if word == mark then found = true else rest[#rest + 1] = word end
  end
  if not found then return nil end
  return table.concat(rest, "&")
end

local function opts_in(job, part_list)
  if set(job.comment) and (job.comment == mark or string.sub(job.comment, 1, #mark + 1) == mark .. " ") then
    return true
  end
  if set(job.features) and not string.find(job.features, "[|%[%]%*]") then
    local rest = without_mark(job.features)
    if rest ~= nil then
      job.features = rest
      return true
    end
  end
  local asked = job.partition
  if not set(asked) then
    for name, partition in pairs(part_list) do
      if partition.flag_default == 1 then asked = name end
    end
  end
  for name in string.gmatch(asked or "", "[^,]+") do
    if partitions[name] then return true end
  end
  return false
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  if not only_batch(job_desc) or not asks_for_gpus(job_desc) then return slurm.SUCCESS end
  if job_desc.priority == 0 then return slurm.SUCCESS end -- held by its user
  if set(job_desc.comment) and string.find(job_desc.comment, "^" .. mark .. " job=%S+ launch=") then
    return slurm.SUCCESS -- submitted by cranny itself, which has placed it
  end
  if not opts_in(job_desc, part_list) then return slurm.SUCCESS end
  local now, begin = os.time(), job_desc.begin_time
  local comment = mark
  if set(begin) and begin > now and begin < now + far / 10 then comment = comment .. " after=" .. string.format("%d", begin) end
  job_desc.admin_comment = comment
  job_desc.begin_time = now + far
  return slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  return slurm.SUCCESS
end

return slurm.SUCCESS
