// What a job's reports say, put into words and into lines of a chart.

import { counted, interval, number, percent } from "./words.js";

const NOTICED = 0.01; // a relative difference that is a change
const KEPT = 0.005; // by which a period that is kept may differ from the one asked for
const MOST_MARKS = 8;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

function differ(one, other) {
  return Math.abs(one - other) > NOTICED * Math.max(Math.abs(one), Math.abs(other));
}

// A report is about the time before it. Between attempts, and after the last one, there is a gap.
export function drawn(points) {
  const made = [];
  points.forEach((point, at) => {
    const from = point.at_s - point.iterations * point.iteration_s, before = points[at - 1];
    if (before && before.attempt !== point.attempt) made.push({ at_s: before.at_s });
    made.push({ ...point, at_s: Math.max(from, made.at(-1)?.at_s ?? from) });
  });
  if (points.length) made.push({ at_s: points.at(-1).at_s });
  return made;
}

// Parts of an iteration that were reported at all; `scale` makes milliseconds of them, or seconds.
export function parts(points, scale) {
  const value = (field) => (point) => (point[field] === undefined ? null : point[field] * scale);
  return [
    { name: "iteration", colour: "c1", area: true, field: "iteration_s", always: true },
    { name: "computing", colour: "c2", field: "compute_s" },
    { name: "communicating", colour: "c0", field: "comm_s" },
    { name: "waiting for its slot", colour: "c4", field: "waited_s" },
  ].filter((line) => line.always || points.some((point) => point[line.field] > 0))
    .map((line) => ({ ...line, value: value(line.field) }));
}

function restarted(restart) {
  if (!restart) return "a new attempt";
  const { gpus, gpus_before: before, step } = restart;
  const how = restart.reason === "resized" ? `resized from ${before} to ${counted(gpus, "GPU")}`
    : restart.reason === "moved" ? "moved" : `started again (${restart.reason || "it ended"})`;
  return `attempt ${restart.attempt}: ${how}${step === null ? "" : `, went on from step ${number(step)}`}`;
}

function paced(point) {
  return point.paced ? `paced, an iteration every ${interval(point.period_s)}` : "no longer paced";
}

function changed(before, point, restart) {
  if (before.attempt !== point.attempt) return restarted(restart);
  if (before.paced !== point.paced || (point.paced && differ(before.period_s, point.period_s))) return paced(point);
  if (before.rank === point.rank && before.samples && point.samples && differ(before.samples, point.samples)) {
    return `rank ${point.rank} has ${number(point.samples, 1)} samples an iteration, ${number(before.samples, 1)} before`;
  }
  return "";
}

// Where placement, pace or share of a job changed: the latest moments, each with a letter.
export function marks(points, restarts) {
  const of = new Map(restarts.map((each) => [each.attempt, each])), made = [];
  points.forEach((point, at) => {
    const text = at && changed(points[at - 1], point, of.get(point.attempt));
    if (text) made.push({ at_s: point.at_s - point.iterations * point.iteration_s, text });
  });
  return made.slice(-MOST_MARKS).map((mark, at) => ({ ...mark, label: LETTERS[at] }));
}

// Mean over the latest reports of the present attempt.
export function latest(points, count = 5) {
  const last = points.at(-1);
  if (!last) return null;
  const recent = points.slice(-count).filter((point) => point.attempt === last.attempt && point.paced === last.paced);
  const sum = recent.reduce((total, point) => total + point.iterations, 0);
  const mean = (field) => recent.reduce((total, point) => total + point.iterations * point[field], 0) / sum;
  return {
    ...last,
    ...Object.fromEntries(["iteration_s", "compute_s", "comm_s", "waited_s"].map((field) => [field, mean(field)])),
  };
}

// Whether a job keeps the pace that it is asked for: {state, text}, or null if it is asked for none.
export function pace(asked, now) {
  if (!asked) return null;
  const period = interval(asked.period_s, 1);
  if (!now) return { state: "unknown", text: `It is asked to start an iteration every ${period}; it has not reported yet.` };
  if (!now.paced) return {
    state: "suspended",
    text: `Not kept: it is asked to start an iteration every ${period}, but does not wait for its slots now. Its iterations take ${interval(now.iteration_s)}.`,
  };
  const longer = now.period_s / asked.period_s - 1;
  if (Math.abs(longer) > KEPT) return {
    state: "longer",
    text: `Not kept: it keeps ${interval(now.period_s, 1)} instead of ${period}, ${percent(Math.abs(longer), 1)} ${longer > 0 ? "longer" : "shorter"}.`,
  };
  return { state: "kept", text: `Kept: an iteration starts every ${period}, as asked.` };
}

// By how much iterations differ from the period that is kept: 0.02 is 2 % longer.
export function drift(now) {
  return now?.paced && now.period_s > 0 ? now.iteration_s / now.period_s - 1 : null;
}

// What a restart cost, and what it has gained so far.
export function cost(restart) {
  if (!restart || restart.cost_s === null) return "–";
  const lost = restart.lost_steps;
  const again = lost === null ? ", lost steps unknown" : lost ? `, ${counted(lost, "step")} done again` : ", no step lost";
  return `${interval(restart.cost_s)}${again}`;
}

export function gain(restart) {
  if (!restart || restart.iteration_s === null) return "–";
  const { iteration_s: after, iteration_before_s: before, gained_s: gained } = restart;
  if (before === null) return interval(after);
  const way = `${interval(before)} → ${interval(after)}`;
  if (!differ(before, after)) return `${way}, about the same`;
  const net = gained - (restart.cost_s ?? 0);
  return `${way}; ${interval(Math.abs(net))} ${net > 0 ? "gained" : "lost"} so far`;
}
