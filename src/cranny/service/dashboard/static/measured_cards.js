// Cards of what a job reports while it runs: its iterations, its pace, its types of GPU, and what was not believed.

import { Chart } from "./chart.js";
import { drawn, drift, latest, marks, pace, parts } from "./course.js";
import { el, fill, rows } from "./dom.js";
import { card, facts, table } from "./parts.js";
import { ago, bytes, clock, counted, interval, number, percent } from "./words.js";

const SECONDS = 2; // from which iterations are shown in seconds
const SHORTEST_S = 20; // that a chart shows

function splitOf(now) {
  const named = [["computing", now.compute_s], ["communicating", now.comm_s], ["waiting for its slot", now.waited_s]];
  const said = named.filter(([, seconds]) => seconds > 0).map(([name, seconds]) => `${interval(seconds)} ${name}`);
  return said.length ? ` (${said.join(", ")})` : "";
}

function savedOf(ranks) {
  const saved = ranks.map((each) => each.saved).filter(Boolean);
  if (!saved.length) return null;
  const last = saved.reduce((one, other) => (other.step > one.step ? other : one));
  return `step ${number(last.step)}, ${ago(last.at_s)}${last.took_s >= 0.05 ? `, in ${interval(last.took_s)}` : ""}`;
}

// The chart is kept from one report to the next, so that pointing at it is not interrupted.
export function iterationsCard() {
  const place = el("div"), known = el("div"), changes = el("ol", { class: "marks" });
  const node = card("Iterations", "", known, place, changes);
  let chart = null, shape = "";
  const show = ({ points, ranks, restarts }) => {
    const unit = Math.max(...points.map((point) => point.iteration_s)) < SECONDS ? " ms" : " s";
    const lines = parts(points, unit === " ms" ? 1000 : 1), print = unit + lines.map((line) => line.name).join();
    if (print !== shape) {
      shape = print;
      chart = new Chart(`Mean iteration,${unit}`, lines, { least: 1e-3, unit, fit: true });
      chart.node.classList.remove("card");
      fill(place, chart.node);
    }
    const made = drawn(points), noted = marks(points, restarts);
    const to = points.at(-1).at_s, from = Math.min(made[0].at_s, to - SHORTEST_S);
    chart.show(made, from, to, noted);
    const now = latest(points);
    fill(known, facts([
      ["Step", number(now.step)], ["Iteration", interval(now.iteration_s) + splitOf(now)],
      ["Samples", now.samples ? `${number(now.samples, 1)} an iteration, of rank ${now.rank}` : null],
      ["Last report", ago(now.at_s)], ["Last checkpoint", savedOf(ranks)],
    ]));
    fill(changes, noted.map((mark) => el(
      "li", {}, el("strong", {}, mark.label), el("time", {}, clock(mark.at_s, true)), el("span", {}, mark.text),
    )));
  };
  return { node, show };
}

export function paceCard({ control, points }) {
  const now = latest(points), said = pace(control?.pace, now);
  if (!said) return null;
  const apart = drift(now);
  return card(
    "Pace", "",
    el("p", { class: `finding pace ${said.state}` }, said.text),
    facts([
      ["Period asked", interval(control.pace.period_s, 1)],
      ["Period kept", now?.paced ? interval(now.period_s, 1) : null], ["Shift", interval(control.pace.shift_s, 1)],
      ["Iterations now", now ? interval(now.iteration_s, 1) : null],
      ["Drift", apart === null ? null : `${apart >= 0 ? "+" : "−"}${percent(Math.abs(apart), 2)} of the period it keeps`],
      ["Waits for slots", now?.paced ? percent(now.waited_s / now.iteration_s, 1) : null],
    ]),
  );
}

// The split is of interest where types differ; speeds, as soon as they are learned.
export function typesCard({ types, profile }) {
  const known = types.filter((each) => each.samples_per_s !== null);
  if (!known.length && types.length < 2) return null;
  const fastest = Math.max(...known.map((each) => each.samples_per_s));
  const heads = [
    { text: "Type" }, { text: "Ranks", numeric: true }, { text: "Share", numeric: true },
    { text: "Each rank", numeric: true }, { text: "Samples/s", numeric: true }, { text: "Speed", numeric: true },
  ];
  const listing = table(
    "Share of the samples, and measured speed of a rank", heads, { className: "stacked", unseenCaption: false },
  );
  rows(
    listing.body, types, (each) => each.gpu_type, (each) => each,
    (each) => el(
      "tr", { role: "row" }, el("th", { scope: "row", role: "rowheader" }, each.gpu_type || "any"),
      [
        each.ranks || "–", each.ranks ? percent(each.share, 1) : "–", each.ranks ? percent(each.share / each.ranks, 1) : "–",
        each.samples_per_s === null ? "not measured" : number(each.samples_per_s, 1),
        each.samples_per_s === null ? "–" : percent(each.samples_per_s / fastest),
      ].map((text, at) => el(
        "td", { class: "number", role: "cell", "data-head": heads[at + 1].text }, String(text),
      )),
    ),
  );
  return card(
    "Types of GPU", "Samples are divided by speed. Speeds are learned from all jobs of this user and name.",
    listing.node,
    profile && facts([
      ["Samples of an iteration", profile.batch && number(profile.batch, 1)],
      ["Communication begins", profile.comm_start === null ? null : `after ${percent(profile.comm_start)} of computing`],
      ["Gradients", profile.gradient_bytes && bytes(profile.gradient_bytes)],
      ["A restart costs", profile.restart_s === null ? null : interval(profile.restart_s)],
    ]),
  );
}

export function doubtedNotice({ bad_reports: count, bad_reason: reason }) {
  return count ? el(
    "div", { class: "notice bad doubted" },
    el("p", {}, `${counted(count, "report")} of this job ${count === 1 ? "was" : "were"} not believed; ` +
      `the last one: ${reason || "no reason given"}.`),
  ) : null;
}
