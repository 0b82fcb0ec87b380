// How numbers, times and states read.

let skewS = 0; // the service's clock less ours

export function setClock(nowS) {
  skewS = nowS - Date.now() / 1000;
}

export function nowS() {
  return Date.now() / 1000 + skewS;
}

export function number(value, places = 0) {
  if (value === null || value === undefined) return "–";
  return value.toLocaleString("en-US", { maximumFractionDigits: places });
}

export function percent(share, places = 0) {
  return share === null || share === undefined || !Number.isFinite(share) ? "–" : `${number(share * 100, places)} %`;
}

export function counted(count, word, words = `${word}s`) {
  return `${number(count)} ${count === 1 ? word : words}`;
}

// Two days read better as 48 h, and ninety minutes as 90 min, than as fractions.
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return "0 s";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length * (unit === "min" ? 1.5 : 2)) {
      const amount = seconds / length;
      return `${number(amount, amount < 10 ? 1 : 0)} ${unit}`;
    }
  }
  return `${Math.round(seconds)} s`;
}

// Times of iterations, which may be far shorter than a second.
export function interval(seconds, places = seconds < 0.02 ? 1 : 0) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${number(seconds * 1000, places)} ms`;
  return seconds < 90 ? `${number(seconds, seconds < 10 ? 2 : 1)} s` : duration(seconds);
}

export function clock(atS, withSeconds = false) {
  if (atS === null || atS === undefined) return "–";
  const at = new Date(atS * 1000), today = new Date(nowS() * 1000).toDateString() === at.toDateString();
  const time = at.toLocaleTimeString(
    "en-GB",
    { hour: "2-digit", minute: "2-digit", second: withSeconds ? "2-digit" : undefined },
  );
  return today ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

export function ago(atS) {
  return atS === null || atS === undefined ? "–" : `${duration(Math.max(0, nowS() - atS))} ago`;
}

export function until(atS) {
  if (atS === null || atS === undefined) return "not known";
  const left = atS - nowS();
  return left < 1 ? "now" : `in ${duration(left)}`;
}

export function bytes(count) {
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (count >= size) return `${number(count / size, count / size < 10 ? 1 : 0)} ${unit}`;
  }
  return `${number(count)} B`;
}

export function gbps(rate) {
  return rate === null || rate === undefined ? "–" : `${number(rate, rate < 0.1 ? 3 : rate < 10 ? 1 : 0)} Gbps`;
}

// Long lists of machines: the first few, and how many more.
export function few(names, most = 3) {
  return names.length <= most ? names.join(", ") : `${names.slice(0, most).join(", ")} and ${names.length - most} more`;
}

const KINDS = {
  submitted: ({ user, job, gpus }) => `${user ?? "another user"} submitted ${job}${gpus ? ` (${counted(gpus, "GPU")})` : ""}`,
  placed: (event) => `${event.job} was placed${event.machines?.length ? ` on ${few(event.machines, 2)}` : ""}`,
  launched: (event) => `${event.job} runs`,
  ended: (event) => `${event.job} ended${event.status ? `: ${event.status}` : ""}`,
  stopping: (event) => `${event.job} is being stopped${event.reason ? `: ${event.reason}` : ""}`,
  stopped: (event) => `${event.job} was stopped by the policy and waits again`,
  retried: (event) => `${event.job} is retried`, vacated: (event) => `${event.job} released its GPUs`,
  paced: ({ job, period_s: period }) => (period ? `${job} starts an iteration every ${interval(period)}` : `${job} keeps no pace any more`),
  profiled: (event) => `${event.job} was measured`,
  given: (event) => `the GPUs of ${event.job} are known`,
  continued: (event) => `${event.job} went on from step ${number(event.step)}`,
  moved: (event) => `${event.job} was moved`, shifted: (event) => `${event.job} was shifted`,
  aggregated: (event) => `other switches aggregate for ${event.job}`,
  cancelled: (event) => `${event.job} was cancelled${event.by ? ` by ${event.by}` : ""}`,
  drained: (event) => `machine ${event.name ?? event.machine} was drained`,
  resumed: (event) => `machine ${event.name ?? event.machine} was resumed`,
  "failed-machine": (event) => `machine ${event.name ?? event.machine} failed`,
  cluster: (event) => `the cluster has changed${event.change ? `: ${event.change}` : ""}`,
  availability: (event) => {
    const out = [...Object.keys(event.failed ?? {}), ...Object.keys(event.unavailable ?? {})];
    return out.length ? `out of service: ${few(out)}` : "all machines are in service";
  },
  foreign: () => "jobs of others started or ended", reservations: () => "reservations have changed",
  prioritized: () => "the queue has another order",
  policy: (event) => `the policy is now ${event.name}`,
  promised: (event) => (event.start_s
    ? `${event.job} is to start at ${clock(event.start_s)} at the latest`
    : `${event.job} is no longer promised a start`),
  recommended: (event) => `a placement for ${event.job} was recommended`,
  withdrawn: (event) => `the placement recommended for ${event.job} no longer holds`,
  observed: (event) => `${event.job} was observed running`, opened: () => "the service was started",
};

export function change(event) {
  return KINDS[event.kind]?.(event) ?? `${event.kind}${event.job ? `: ${event.job}` : ""}`;
}

export const OVER = ["done", "failed", "cancelled"];
export const HELD = ["starting", "running", "stopping"];
