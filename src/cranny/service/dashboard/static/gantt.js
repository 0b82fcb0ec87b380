// A canvas of rows over time. It is as high as the view, and paints only the rows that are scrolled into it.

import { jobColour, shades } from "./colours.js";
import { timeTicks } from "./chart.js";
import { el } from "./dom.js";
import { whenTheme } from "./theme.js";
import { hideTip, showTip } from "./tip.js";
import { clock, counted, duration, until } from "./words.js";

const HEAD = 24;
const LANES = [7, 17]; // the least and the most height of a lane
const PREDICTED = 240; // the most height of a row
const MANY = 40; // rows from which all are equally high

export class Gantt {
  constructor(scope, { open, tallest = 640 }) {
    this.canvas = el("canvas", { class: "gantt", "aria-hidden": "true" });
    this.tall = el("div", { class: "gantt-tall" });
    this.node = el(
      "div",
      {
        class: "gantt-scroll", tabindex: "0", role: "region",
        "aria-label": "Timeline; the table below has the same facts",
      },
      this.canvas, this.tall,
    );
    Object.assign(this, { open, tallest, rows: [], tops: [], lit: null, planned: false });
    scope.listen(this.node, "scroll", () => this.plan());
    scope.listen(this.canvas, "pointermove", (event) => this.hover(event));
    scope.listen(this.canvas, "pointerleave", () => this.leave());
    scope.listen(
      this.canvas, "click",
      (event) => { const bar = this.at(event); if (bar) { hideTip(); this.open(bar.job); } },
    );
    scope.sizes(this.node, () => this.plan());
    whenTheme(scope, () => this.plan());
  }

  show(rows, fromS, toS, nowS) {
    Object.assign(this, { rows, fromS, toS, nowS });
    const crowd = rows.reduce((sum, row) => sum + Math.max(1, row.lanes), 0);
    const lane = Math.max(LANES[0], Math.min(LANES[1], (this.tallest - HEAD - 7 * rows.length) / crowd));
    this.tops = [];
    let top = 0;
    for (const row of rows) {
      this.tops.push(top);
      const own = rows.length <= MANY || row.waiting;
      top += own ? Math.max(20, Math.min(PREDICTED, row.lanes * (row.waiting ? LANES[1] : lane) + 6)) : 20;
    }
    this.tops.push(top);
    const high = Math.min(this.tallest, top + HEAD + 2);
    this.node.style.height = `${high}px`;
    this.tall.style.height = `${top + HEAD - high + 2 > 0 ? top + HEAD - high + 2 : 0}px`;
    this.plan();
  }

  plan() {
    if (this.planned) return;
    this.planned = true;
    requestAnimationFrame(() => {
      this.planned = false;
      this.draw();
    });
  }

  x(atS) {
    return this.left + (atS - this.fromS) / (this.toS - this.fromS) * (this.width - this.left - 8);
  }

  draw() {
    const width = this.node.clientWidth, height = this.node.clientHeight;
    if (!width || !this.rows.length) return;
    const ratio = devicePixelRatio || 1, colours = shades();
    this.width = width;
    this.left = Math.min(150, width * 0.3);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = `11.5px ${colours.font}`;
    this.grid(pen, height, colours);
    const scrolled = this.node.scrollTop;
    pen.save();
    pen.beginPath();
    pen.rect(0, HEAD, width, height - HEAD);
    pen.clip();
    this.rows.forEach((row, at) => {
      const top = HEAD + this.tops[at] - scrolled, high = this.tops[at + 1] - this.tops[at];
      if (top + high > HEAD && top < height) this.row(pen, row, top, high, colours);
    });
    const now = this.x(this.nowS);
    pen.fillStyle = colours.strong;
    pen.fillRect(now - 0.75, HEAD, 1.5, height - HEAD);
    pen.restore();
    this.canvas.dataset.ready = "yes";
  }

  grid(pen, height, colours) {
    pen.textAlign = "center";
    for (const at of timeTicks(this.fromS, this.toS, this.width < 600 ? 3 : 8)) {
      const x = this.x(at);
      if (x < this.left + 16 || x > this.width - 16) continue;
      pen.fillStyle = colours.soft;
      pen.fillText(clock(at), x, 15);
      pen.fillStyle = colours.rule;
      pen.fillRect(Math.round(x), HEAD - 4, 1, height);
    }
    pen.textAlign = "left";
  }

  row(pen, row, top, high, colours) {
    pen.fillStyle = colours.rule;
    pen.fillRect(0, top + high - 1, this.width, 1);
    pen.fillStyle = row.waiting ? colours.ink : colours.soft;
    let text = row.name; // names differ most at their end
    while (text.length > 2 && pen.measureText(text).width > this.left - 12) text = `…${text.slice(2)}`;
    pen.fillText(text, 4, top + high / 2 + 4);
    pen.save();
    pen.beginPath();
    pen.rect(this.left, top, this.width - this.left, high);
    pen.clip();
    const each = (high - 4) / Math.max(1, row.lanes);
    for (const bar of row.bars) this.bar(
      pen, bar, top + 2 + bar.lane * each, Math.max(1.5, each - (each > 5 ? 1.5 : 0.5)), colours,
    );
    pen.restore();
  }

  bar(pen, bar, y, high, colours) {
    const x = this.x(bar.from), end = this.x(bar.predicted ? bar.to : bar.shown), wide = Math.max(1.5, end - x);
    if (end < this.left || x > this.width) return;
    const { fill, ink } = jobColour(bar.job.id);
    pen.globalAlpha = this.lit && this.lit !== bar.job.id ? 0.25 : 1;
    if (bar.predicted) {
      pen.strokeStyle = fill;
      pen.lineWidth = 1.5;
      pen.setLineDash([4, 3]);
      pen.strokeRect(x + 0.75, y + 0.75, wide - 1.5, Math.max(high - 1.5, 1));
      pen.setLineDash([]);
    } else {
      pen.fillStyle = fill;
      pen.fillRect(x, y, wide, high);
      if (bar.until > bar.shown) {
        pen.globalAlpha *= 0.35;
        pen.fillRect(end, y, this.x(bar.until) - end, high);
        pen.globalAlpha = this.lit && this.lit !== bar.job.id ? 0.25 : 1;
      }
      if (bar.run.how) {
        pen.fillStyle = bar.run.how === "failed" ? colours.alarm : colours.soft;
        pen.fillRect(end - 3, y, 3, high);
      }
    }
    if (high >= 12) {
      const from = Math.max(x, this.left), room = this.x(bar.to) - from;
      const long = pen.measureText(bar.job.id).width;
      pen.fillStyle = bar.predicted || end - from < long + 4 ? colours.ink : ink;
      if (long < room - 8) pen.fillText(bar.job.id, from + 5, y + high / 2 + 4);
    }
    pen.globalAlpha = 1;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top - HEAD + this.node.scrollTop;
    const at = this.tops.findLastIndex((top) => top <= y), row = this.rows[at];
    if (!row || x < this.left || event.clientY - box.top < HEAD) return null;
    const lane = Math.floor((y - this.tops[at] - 2) / ((this.tops[at + 1] - this.tops[at] - 4) / Math.max(
      1, row.lanes,
    )));
    return row.bars.find((bar) => bar.lane === lane && x >= this.x(bar.from) - 1 && x <= Math.max(
      this.x(bar.to), this.x(bar.from) + 3,
    )) ?? null;
  }

  hover(event) {
    const bar = this.at(event);
    this.canvas.style.cursor = bar ? "pointer" : "";
    if (bar) {
      const { job, run = job } = bar;
      const end = run.ended_s === null ? `now, ${duration(bar.shown - bar.from)}` : clock(bar.shown, true);
      const when = bar.predicted ? `predicted to start ${until(bar.from)}` : `${clock(bar.from, true)} to ${end}`;
      const where = bar.predicted ? "" : ` on ${counted(run.machines.length, "machine")}`;
      showTip(
        [
          job.name || job.id,
          [`${job.id}, ${job.user}, ${counted(job.gpus, "GPU")}${where}`],
          `${run.outcome ?? job.status}${run.tries > 1 ? `, attempt ${run.attempt} of ${run.tries}` : ""}`, when,
        ],
        event.clientX, event.clientY,
      );
    } else hideTip();
    const lit = bar?.job.id ?? null;
    if (lit !== this.lit) {
      this.lit = lit;
      this.plan();
    }
  }

  leave() {
    hideTip();
    this.lit = null;
    this.plan();
  }
}
