// Small charts of something over time, as SVG.

import { el, fill, svg } from "./dom.js";
import { hideTip, showTip } from "./tip.js";
import { clock, nowS, number } from "./words.js";

const WIDE = 420, HIGH = 130, LEFT = 38, RIGHT = 10, TOP = 8, BOTTOM = 20;
const STEPS_S = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];

function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 8, 10].find((each) => each * power >= value * (1 - 1e-9)) * power;
}

// Round local times between two moments.
export function timeTicks(fromS, toS, most = 5) {
  const step = STEPS_S.find((each) => (toS - fromS) / each <= most) ?? 86400 * Math.ceil((toS - fromS) / 86400 / most);
  const zone = new Date(fromS * 1000).getTimezoneOffset() * 60, ticks = [];
  for (let at = Math.ceil((fromS - zone) / step) * step + zone; at <= toS; at += step) ticks.push(at);
  return ticks;
}

// A chart of lines {name, colour, area, value(point)} over points with `at_s`; `share` draws from 0 to 100 %.
export class Chart {
  constructor(title, lines, { share = false } = {}) {
    this.title = title;
    this.lines = lines;
    this.share = share;
    this.now = el("span", { class: "now" });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, class: "chart", role: "img" });
    const key = lines.length > 1 ? lines.map((line) => el(
      "span", { class: "key-line" }, el("i", { class: `swatch ${line.colour}` }), line.name,
    )) : null;
    this.node = el(
      "figure", { class: "card chart-card" },
      el("figcaption", {}, el("strong", {}, title), key, this.now), this.picture,
    );
    this.picture.addEventListener("pointermove", (event) => this.hover(event));
    this.picture.addEventListener("pointerleave", () => this.leave());
  }

  text(value) {
    return this.share ? `${number(value * 100, 1)} %` : number(value, 1);
  }

  show(points, fromS, toS) {
    Object.assign(this, { points, fromS, toS });
    this.high = this.share ? 1 : roundUp(Math.max(
      4,
      ...points.flatMap((point) => this.lines.map((line) => line.value(point) ?? 0))
    ));
    const x = (atS) => LEFT + (atS - fromS) / (toS - fromS) * (WIDE - LEFT - RIGHT);
    const y = (value) => HIGH - BOTTOM - value / this.high * (HIGH - TOP - BOTTOM);
    this.x = x;
    const marks = [0, 0.5, 1].map((part) => part * this.high);
    const grid = marks.map((mark) => [
      svg("path", { class: mark ? "grid" : "base", d: `M${LEFT} ${y(mark).toFixed(1)}H${WIDE - RIGHT}` }),
      svg("text", { class: "end", x: LEFT - 6, y: y(mark) + 4 }, this.share ? `${mark * 100}%` : number(mark, 1)),
    ]);
    const times = timeTicks(fromS, toS).filter((at) => x(at) > LEFT + 8 && x(at) < WIDE - 16)
      .map((at) => svg("text", { class: "middle", x: x(at).toFixed(1), y: HIGH - 5 }, clock(at)));
    const drawn = this.lines.map((line) => this.line(line, x, y));
    this.cross = svg("path", { class: "cross" });
    fill(this.picture, grid, times, drawn, this.cross);
    this.describe();
  }

  // Values hold until the next point, so lines go in steps.
  line(line, x, y) {
    const known = this.points.filter((point) => point.at_s <= this.toS && line.value(point) !== null);
    if (!known.length) return null;
    let path = "";
    known.forEach((point, index) => {
      const at = x(Math.max(point.at_s, this.fromS)).toFixed(1), high = y(line.value(point)).toFixed(1);
      path += index ? `H${at}V${high}` : `M${at} ${high}`;
    });
    const end = x(Math.min(this.toS, Math.max(nowS(), known.at(-1).at_s))).toFixed(1);
    path += `H${end}`;
    const from = x(Math.max(known[0].at_s, this.fromS)).toFixed(1);
    return [
      line.area ? svg("path", { class: `area ${line.colour}`, d: `${path}V${y(0)}H${from}Z` }) : null,
      svg("path", { class: `line ${line.colour}`, d: path }),
    ];
  }

  describe() {
    const last = this.points.at(-1);
    this.now.textContent = last ? this.lines.map((line) => this.text(line.value(last))).join(" / ") : "";
    const parts = last ? this.lines.map((line) => {
      const values = this.points.map(line.value);
      const [now, low, high] = [values.at(-1), Math.min(...values), Math.max(...values)].map((value) => this.text(value));
      return `${line.name}: now ${now}, lowest ${low}, highest ${high}`;
    }) : ["nothing recorded yet"];
    this.picture.setAttribute("aria-label", `${this.title} since ${clock(this.fromS)}. ${parts.join(". ")}.`);
  }

  hover(event) {
    if (!this.points?.length) return;
    const box = this.picture.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * WIDE;
    const atS = this.fromS + (at - LEFT) / (WIDE - LEFT - RIGHT) * (this.toS - this.fromS);
    const point = this.points.findLast((each) => each.at_s <= atS) ?? this.points[0];
    const place = Math.min(Math.max(at, LEFT), WIDE - RIGHT).toFixed(1);
    this.cross.setAttribute("d", `M${place} ${TOP}V${HIGH - BOTTOM}`);
    showTip(
      [
        clock(Math.max(atS, this.fromS), true),
        ...this.lines.map((line) => `${line.name} ${this.text(line.value(point))}`),
      ],
      event.clientX, event.clientY,
    );
  }

  leave() {
    this.cross?.setAttribute("d", "");
    hideTip();
  }
}
