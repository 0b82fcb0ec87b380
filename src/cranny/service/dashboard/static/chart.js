// Small charts of something over time, as SVG.

import { el, fill, svg } from "./dom.js";
import { hideTip, showTip } from "./tip.js";
import { clock, nowS, number } from "./words.js";

const WIDE = 420, WIDEST = 900, HIGH = 130, LEFT = 38, RIGHT = 10, TOP = 8, BOTTOM = 20;
const STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800];

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
// Where a value is null, its line is interrupted. `least` is the lowest top of the scale, `unit` stands after values.
// With `fit` it is as many units wide as it has pixels, so that its text is as large as elsewhere.
export class Chart {
  constructor(title, lines, { share = false, least = 4, unit = "", fit = false } = {}) {
    Object.assign(this, { title, lines, share, least, unit, fit, wide: WIDE });
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
    if (value === null) return "–";
    return this.share ? `${number(value * 100, 1)} %` : `${number(value, 1)}${this.unit}`;
  }

  // `changes` are moments {at_s, label}.
  show(points, fromS, toS, changes = []) {
    Object.assign(this, { points, fromS, toS });
    if (this.fit) {
      this.wide = Math.min(WIDEST, this.picture.getBoundingClientRect().width || WIDE);
      this.picture.setAttribute("viewBox", `0 0 ${this.wide} ${HIGH}`);
    }
    const { wide } = this;
    this.high = this.share ? 1 : roundUp(Math.max(
      this.least,
      ...points.flatMap((point) => this.lines.map((line) => line.value(point) ?? 0))
    ));
    const x = (atS) => LEFT + (atS - fromS) / (toS - fromS) * (wide - LEFT - RIGHT);
    const y = (value) => HIGH - BOTTOM - value / this.high * (HIGH - TOP - BOTTOM);
    this.x = x;
    const marks = [0, 0.5, 1].map((part) => part * this.high);
    const grid = marks.map((mark) => [
      svg("path", { class: mark ? "grid" : "base", d: `M${LEFT} ${y(mark).toFixed(1)}H${wide - RIGHT}` }),
      svg("text", { class: "end", x: LEFT - 6, y: y(mark) + 4 }, this.share ? `${mark * 100}%` : number(mark, 1)),
    ]);
    const exact = toS - fromS < 300; // times with seconds, which are longer
    const times = timeTicks(fromS, toS).filter((at) => x(at) > LEFT + 8 && x(at) < wide - (exact ? 28 : 16))
      .map((at) => svg("text", { class: "middle", x: x(at).toFixed(1), y: HIGH - 5 }, clock(at, exact)));
    const changed = changes.filter((mark) => mark.at_s >= fromS && mark.at_s <= toS).map((mark) => [
      svg("path", { class: "mark", d: `M${x(mark.at_s).toFixed(1)} ${TOP}V${HIGH - BOTTOM}` }),
      svg("text", { class: "middle mark-name", x: x(mark.at_s).toFixed(1), y: TOP + 4 }, mark.label),
    ]);
    const drawn = this.lines.map((line) => this.line(line, x, y));
    this.cross = svg("path", { class: "cross" });
    fill(this.picture, grid, times, drawn, changed, this.cross);
    this.describe();
  }

  // Values hold until the next point, so lines go in steps.
  line(line, x, y) {
    const known = this.points.filter((point) => point.at_s <= this.toS);
    let path = "", area = "", piece = "", from = "";
    const end = (at) => {
      if (piece) {
        path += `${piece}H${at}`;
        area += `${piece}H${at}V${y(0)}H${from}Z`;
      }
      piece = "";
    };
    for (const point of known) {
      const at = x(Math.max(point.at_s, this.fromS)).toFixed(1), value = line.value(point);
      if (value === null) end(at);
      else if (piece) piece += `H${at}V${y(value).toFixed(1)}`;
      else [from, piece] = [at, `M${at} ${y(value).toFixed(1)}`];
    }
    if (known.length) end(x(Math.min(this.toS, Math.max(nowS(), known.at(-1).at_s))).toFixed(1));
    return path && [
      line.area ? svg("path", { class: `area ${line.colour}`, d: area }) : null,
      svg("path", { class: `line ${line.colour}`, d: path }),
    ];
  }

  describe() {
    const said = this.points.filter((point) => this.lines.some((line) => line.value(point) !== null));
    const last = said.at(-1);
    this.now.textContent = last ? this.lines.map((line) => this.text(line.value(last))).join(" / ") : "";
    const parts = last ? this.lines.filter((line) => said.some((point) => line.value(point) !== null)).map((line) => {
      const values = said.map(line.value).filter((value) => value !== null);
      const [now, low, high] = [values.at(-1), Math.min(...values), Math.max(...values)].map((value) => this.text(value));
      return `${line.name}: now ${now}, lowest ${low}, highest ${high}`;
    }) : ["nothing recorded yet"];
    this.picture.setAttribute("aria-label", `${this.title} since ${clock(this.fromS)}. ${parts.join(". ")}.`);
  }

  hover(event) {
    if (!this.points?.length) return;
    const box = this.picture.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * this.wide;
    const atS = this.fromS + (at - LEFT) / (this.wide - LEFT - RIGHT) * (this.toS - this.fromS);
    const point = this.points.findLast((each) => each.at_s <= atS) ?? this.points[0];
    const place = Math.min(Math.max(at, LEFT), this.wide - RIGHT).toFixed(1);
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
