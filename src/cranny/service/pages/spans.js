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

// One row a machine, in the order given. Running jobs end now; the estimate of their end is `until`.
export function machineRows(machines, jobs, nowS, fromS) {
  const bars = new Map(machines.map((name) => [name, []]));
  for (const job of jobs) {
    if (job.started_s === null || (job.ended_s !== null && job.ended_s < fromS)) continue;
    const to = job.ended_s ?? nowS;
    const estimate = job.expected_end_s ?? null;
    for (const name of job.machines) bars.get(name)?.push({
      job, from: job.started_s, to: Math.max(to, estimate ?? 0), shown: to, until: estimate,
    });
  }
  return machines.map((name) => ({ name, bars: bars.get(name), lanes: lanes(bars.get(name)) }));
}

// The waiting jobs with a predicted start, as rows of their own.
export function waitingRow(jobs, nowS, toS) {
  const bars = jobs.filter((job) => job.predicted_start_s !== null && job.predicted_start_s < toS)
    .map((job) => ({
      job, from: Math.max(job.predicted_start_s, nowS),
      to: Math.max(job.predicted_start_s, nowS) + (job.duration_s ?? 60), predicted: true,
    }));
  return { name: "predicted starts", bars, lanes: lanes(bars), waiting: true };
}
