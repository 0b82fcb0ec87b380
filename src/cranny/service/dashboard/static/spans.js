// What ran on each machine from when to when, as bars in lanes.

// Give each bar the first lane that is free when it starts. Sets `lane` and returns how many lanes there are.
export function lanes(bars) {
  const ends = [];
  for (const bar of bars.sort((one, other) => one.from - other.from)) {
    let lane = ends.findIndex((end) => end <= bar.from + 1e-9);
    if (lane < 0) lane = ends.length;
    ends[lane] = bar.to;
    bar.lane = lane;
  }
  return ends.length;
}

// What jobs did: a run for each attempt that began, with how it ended.
export function runsOf(jobs) {
  return jobs.flatMap((job) => {
    const before = (job.earlier ?? []).map((each) => ({ ...each, how: HOW[each.outcome] ?? "failed" }));
    const how = { failed: "failed", cancelled: "stopped" }[job.status] ?? "";
    return [...before, { ...job, how }].filter((run) => run.started_s !== null)
      .map((run) => ({ ...run, job, tries: before.length + (job.machines.length ? 1 : 0) }));
  });
}
const HOW = { finished: "", moved: "stopped", stopped: "stopped", cancelled: "stopped" };

// The machines of runs that are no longer in the cluster.
export function departed(machines, runs) {
  const there = new Set(machines.map((node) => node.name));
  return [...new Set(runs.flatMap((run) => run.machines))].filter((name) => !there.has(name)).sort();
}

// One row a machine, in the order given. Running jobs end now; the estimate of their end is `until`.
export function machineRows(machines, runs, nowS, fromS) {
  const bars = new Map(machines.map((name) => [name, []]));
  for (const run of runs) {
    if (run.ended_s !== null && run.ended_s < fromS) continue;
    const to = run.ended_s ?? nowS;
    const estimate = run.expected_end_s ?? null;
    for (const name of run.machines) bars.get(name)?.push({
      job: run.job, run, from: run.started_s, to: Math.max(to, estimate ?? 0), shown: to, until: estimate,
    });
  }
  return machines.map((name) => ({ name, bars: bars.get(name), lanes: lanes(bars.get(name)) }));
}

// Until when time is shown: a quarter of the range lies ahead, or as much as shows the first predicted starts.
export function edge(jobs, nowS, rangeS) {
  const ahead = jobs.filter((job) => job.predicted_start_s !== null).map((job) => job.predicted_start_s - nowS)
    .sort((one, other) => one - other).slice(0, FIRST).filter((s) => s < 0.8 * rangeS);
  return nowS + Math.max(rangeS / 4, 1.25 * (ahead.at(-1) ?? 0));
}
const FIRST = 12; // predicted starts that are worth a longer view

// The waiting jobs with a predicted start, as rows of their own.
export function waitingRow(jobs, nowS, toS) {
  const bars = jobs.filter((job) => job.predicted_start_s !== null && job.predicted_start_s < toS)
    .map((job) => ({
      job, from: Math.max(job.predicted_start_s, nowS),
      to: Math.max(job.predicted_start_s, nowS) + (job.duration_s ?? 60), predicted: true,
    }));
  return { name: "predicted", bars, lanes: lanes(bars), waiting: true };
}
