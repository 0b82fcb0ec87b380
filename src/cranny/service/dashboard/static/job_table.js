// Tables of jobs: those that wait with the reason, those that run, those that are over.

import { el, fill, rows, say } from "./dom.js";
import { jobLink, status, table } from "./parts.js";
import { ago, clock, duration, few, nowS, number, until } from "./words.js";

const name = {
  text: "Job", className: "first",
  cell: (job) => [jobLink(job.id), job.name && job.name !== job.id ? el("span", { class: "name" }, job.name) : null],
};
const user = { text: "User", cell: (job) => job.user };
const gpus = { text: "GPUs", numeric: true, cell: (job) => job.gpus };
const state = { text: "State", cell: (job) => status(job.status) };
const machines = { text: "Machines", cell: (job) => few(job.machines, 2) || "–" };

const COLUMNS = {
  waiting: [
    { text: "#", numeric: true, cell: (job, place) => place + 1 }, name, user, gpus,
    { text: "Why it waits", className: "why", cell: (job) => job.reason || "not decided yet" },
    {
      text: "Predicted start", className: "when",
      cell: ({ predicted_start_s: atS }) => (atS === null ? "not known" : `${until(atS)} · ${clock(atS)}`),
    },
    { text: "Waits for", numeric: true, cell: (job) => duration(nowS() - job.submitted_s) },
  ],
  running: [
    name, user, gpus, state, { text: "Model", cell: (job) => job.model || "–" }, machines,
    {
      text: "Runs for", numeric: true,
      cell: (job) => (job.started_s === null ? "–" : duration(nowS() - job.started_s)),
    },
    {
      text: "Expected end", numeric: true,
      cell: (job) => until(job.expected_end_s),
    },
  ],
  over: [
    name, user, gpus, state, machines,
    {
      text: "Ran for", numeric: true,
      cell: (job) => (job.started_s === null || job.ended_s === null ? "–" : duration(job.ended_s - job.started_s)),
    },
    { text: "Ended", numeric: true, cell: (job) => ago(job.ended_s) },
    { text: "Remark", className: "why", cell: (job) => job.reason || "" },
  ],
};
const CAPTIONS = {
  waiting: "Waiting jobs, in the order of the queue", running: "Jobs that hold GPUs",
  over: "Jobs that are over, newest first",
};
export const STATUSES = {
  waiting: ["waiting"], running: ["starting", "running", "stopping"], over: ["done", "failed", "cancelled"],
};

// Say on each button how many jobs are of its kind.
export function showCounts(buttons, counts) {
  for (const [kind, button] of buttons) {
    const total = STATUSES[kind].reduce((sum, each) => sum + (counts[each] ?? 0), 0);
    say(button, `${KIND_NAMES[kind]} ${number(total)}`);
  }
}

export const KIND_NAMES = { waiting: "Waiting", running: "Running", over: "Over" };

// A table, or what stands there while it is empty.
export class JobTable {
  constructor(kind, light = () => {}) {
    Object.assign(this, { kind, columns: COLUMNS[kind], light, place: el("div"), empty: nothing(kind) });
    Object.assign(this, table(CAPTIONS[kind], this.columns, { className: "jobs stacked" }));
  }

  show(jobs) {
    this.jobs = jobs;
    const wanted = jobs.length ? this.node : this.empty;
    if (this.place.firstChild !== wanted) fill(this.place, wanted);
    const places = new Map(jobs.map((job, place) => [job.id, place]));
    const plain = (cell) => (cell instanceof Node ? cell.textContent : Array.isArray(cell) ? cell.map(plain) : cell);
    const cells = (job) => this.columns.map((column) => column.cell(job, places.get(job.id)));
    rows(this.body, jobs, (job) => job.id, (job) => plain(cells(job)), (job) => this.row(job, cells(job)));
  }

  row(job, cells) {
    const lit = (on) => () => this.light(on ? job.id : null);
    return el(
      "tr",
      { role: "row", on: { pointerenter: lit(true), pointerleave: lit(false) } },
      cells.map((cell, at) => {
        const { text, numeric, className = "" } = this.columns[at];
        return el("td", { role: "cell", class: numeric ? "number" : className, "data-head": text }, cell);
      }),
    );
  }

  tick() {
    if (this.jobs) this.show(this.jobs);
  }
}

const SUBMIT = `cat > job.yaml <<END
command: [python, train.py]
gpus: 4
END
cranny submit job.yaml`;

function nothing(kind) {
  if (kind === "running") return el("div", { class: "empty" }, el("p", {}, "No job runs."));
  if (kind === "over") return el("div", { class: "empty" }, el("p", {}, "No job is over yet."));
  return el(
    "div", { class: "empty" },
    el(
      "p", {}, "No job waits. Submit one from a shell, or on the page ", el("a", { href: "#/what-if" }, "What if"),
      ":",
    ),
    el("pre", { tabindex: "0" }, SUBMIT),
  );
}
