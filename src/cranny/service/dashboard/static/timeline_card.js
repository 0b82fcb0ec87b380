// The timeline with its range of time, its filter, and the same facts as a table.

import { ask, segment } from "./api.js";
import { el, rows, say } from "./dom.js";
import { Gantt } from "./gantt.js";
import { choice, jobLink, status, table } from "./parts.js";
import { departed, edge, machineRows, runsOf, waitingRow } from "./spans.js";
import * as store from "./store.js";
import { clock, counted, duration, few, nowS, number, until } from "./words.js";

const RANGES = [[15, "15 min"], [60, "1 h"], [360, "6 h"], [1440, "24 h"], [10080, "7 d"]];
const CUT = " Only the newest jobs are shown.";
const MOST_PAGES = 5;
const MOST_ROWS = 300;
const HEADS = [
  { text: "Job" }, { text: "User" }, { text: "State" }, { text: "Machines" }, { text: "From" },
  { text: "To" }, { text: "Length", numeric: true },
];

// Jobs that ran since a moment: newest first, page after page until one is older.
async function since(fromS) {
  const found = [];
  const held = await ask(
    "jobs",
    { query: { status: ["starting", "running", "stopping"], limit: 1000, newest: true } },
  );
  let after, cut = Boolean(held.next);
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const said = await ask(
      "jobs",
      { query: { status: ["done", "failed", "cancelled"], limit: 1000, newest: true, after } },
    );
    found.push(...said.jobs);
    after = said.next;
    if (!after || said.jobs.every((job) => (job.ended_s ?? 0) < fromS)) return {
      jobs: [...held.jobs, ...found], cut,
    };
  }
  cut = true;
  return { jobs: [...held.jobs, ...found], cut };
}

function row({ job, ...run }) {
  const state = run.outcome === undefined ? status(job.status) : `${run.outcome} (attempt ${run.attempt})`;
  return el(
    "tr", {}, el("th", { scope: "row" }, jobLink(job.id)), el("td", {}, job.user), el("td", {}, state),
    el("td", { class: "why" }, few(run.machines, 4)), el("td", {}, clock(run.started_s, true)),
    el("td", {}, run.ended_s === null ? "now" : clock(run.ended_s, true)),
    el("td", { class: "number" }, duration((run.ended_s ?? nowS()) - run.started_s)),
  );
}

// Of the waiting jobs, how many have a predicted start in view, and how many beyond it.
function predictedSection(shown, jobs, total, toS) {
  if (!total) return "";
  const beyond = jobs.filter((job) => job.predicted_start_s !== null && job.predicted_start_s >= toS);
  const first = Math.min(...beyond.map((job) => job.predicted_start_s));
  const unknown = jobs.length - shown - beyond.length, later = total - jobs.length;
  const parts = [
    shown ? `${counted(shown, "predicted start")} shown` : "",
    beyond.length ? `${number(beyond.length)} beyond the right edge, the first ${until(first)}` : "",
    unknown ? `${number(unknown)} not predicted` : "", later ? `${number(later)} further back` : "",
  ];
  return `; ${counted(total, "job")} waiting: ${parts.filter(Boolean).join(", ")}`;
}

export function timelineCard(scope, { only = null, title = "Timeline" } = {}) {
  let minutes = 60, chosen = false, jobs = [], cut = false, machines = [], waiting = [], total = 0;
  const gantt = new Gantt(scope, { open: (job) => { location.hash = `#/jobs/${segment(job.id)}`; } });
  const readout = el("p", { class: "readout", role: "status" });
  const filter = el(
    "input",
    { id: "timeline-filter", type: "text", size: "14", autocomplete: "off", spellcheck: "false" },
  );
  const listing = table("Jobs of the timeline, newest first", HEADS);
  const details = el("details", {}, el("summary", {}, "The timeline as a table"), listing.node);
  const draw = () => {
    const now = nowS();
    const fromS = now - minutes * 60;
    const toS = edge(only ? [] : waiting, now, minutes * 60);
    const wanted = filter.value.trim().toLowerCase();
    const meant = machines.filter((node) => `${node.name} ${node.rack}`.toLowerCase().includes(wanted));
    const runs = runsOf([...jobs, ...waiting]).filter((run) => (run.ended_s ?? now) >= fromS);
    // Machines that have left the cluster come last, as long as something that ran there is shown.
    const left = departed(machines, runs).filter((name) => name.toLowerCase().includes(wanted));
    const names = only ? [only] : [...meant.map((node) => node.name), ...left];
    const ran = new Set(runs.map((run) => run.job.id)).size;
    const shown = machineRows(names, runs, now, fromS);
    const predicted = waitingRow(waiting, now, toS);
    gantt.show(only || !predicted.bars.length ? shown : [predicted, ...shown], fromS, toS, now);
    const busy = shown.filter((each) => each.bars.length).length, here = only ? shown[0].bars.length : ran;
    const ahead = predictedSection(predicted.bars.length, waiting, total, toS);
    say(
      readout,
      only ? `${counted(here, "job")} in this time.`
        : `${counted(here, "job")} on ${busy} of ${counted(names.length, "machine")}${ahead}.${cut ? CUT : ""}`,
    );
    if (!details.open) return;
    const listed = runs.filter((run) => !only || run.machines.includes(only));
    listed.sort((one, other) => other.started_s - one.started_s);
    rows(
      listing.body, listed.slice(0, MOST_ROWS), (run) => `${run.job.id} ${run.started_s}`,
      (run) => [run.job.status, run.ended_s], row,
    );
  };
  const past = new store.Resource(
    () => since(nowS() - minutes * 60),
    {
      gap: 1500,
      cares: (event) => [
        "placed", "launched", "ended", "stopped", "cancelled", "moved", "opened",
      ].includes(event.kind),
    },
  );
  scope.watch(past, (said) => {
    ({ jobs, cut } = said);
    const young = (job) => job.started_s === null || job.started_s > nowS() - 60 * RANGES[0][0];
    if (!chosen && jobs.every(young)) range.buttons.get(RANGES[0][0]).click(); // a service that has just begun
    chosen = true;
    draw();
  });
  if (!only) {
    scope.watch(store.nodes, (nodes) => {
      const known = nodes.length === machines.length && nodes.every((node, at) => node.name === machines[at].name);
      machines = nodes;
      if (!known) draw();
    });
    scope.watch(store.jobs({ status: "waiting", limit: 50 }, 1500), (said) => {
      ({ jobs: waiting, total } = said);
      draw();
    });
  }
  scope.every(2000, draw);
  scope.listen(filter, "input", draw);
  scope.listen(details, "toggle", draw);
  const range = choice("Time shown", RANGES, minutes, (wanted) => {
    chosen = true;
    minutes = wanted;
    draw();
    past.touch(0);
  });
  const node = el(
    "section", { class: "card pad", "aria-label": title },
    el(
      "div", { class: "head" }, only ? el("h2", {}, title) : null, range.node,
      only ? null : el("label", { for: "timeline-filter" }, "Only machines or racks with ", filter),
    ),
    readout, gantt.node,
    el(
      "p", { class: "hint key-text" },
      "Solid: ran. Pale: until the expected end. Dashed: predicted start of a waiting job. ",
      "Red end: failed; grey end: cancelled. The line is now.",
    ),
    details,
  );
  return { node, gantt };
}
