// Circles of jobs that share a link, as CASSINI sees them: a ring a job, its arcs where it sends.

import { jobColour } from "./colours.js";
import { el, svg } from "./dom.js";
import { jobLink } from "./parts.js";
import { counted, gbps, interval, number } from "./words.js";

const MIDDLE = 110;
const OUTER = 96;
const INNER = 38;

// Time runs counter-clockwise from three o'clock, as in the paper's figures.
function arc(radius, from, to) {
  const point = (turn) => {
    const angle = 2 * Math.PI * turn;
    return `${(MIDDLE + radius * Math.cos(angle)).toFixed(2)} ${(MIDDLE - radius * Math.sin(angle)).toFixed(2)}`;
  };
  const middle = (from + to) / 2; // two halves: one arc cannot be a whole turn
  return `M${point(from)}A${radius} ${radius} 0 0 0 ${point(middle)}A${radius} ${radius} 0 0 0 ${point(to)}`;
}

function ring(job, radius, width, link) {
  const turns = Math.max(1, Math.round(link.perimeter_s / job.iteration_s)), arcs = [];
  for (let turn = 0; turn < turns; turn += 1) {
    for (const [fromS, toS, rate] of job.arcs) {
      const from = (turn * job.iteration_s + fromS + job.shift_s) / link.perimeter_s;
      const to = from + (toS - fromS) / link.perimeter_s;
      const path = svg("path", { class: "arc", d: arc(radius, from, to), "stroke-width": width });
      path.style.stroke = jobColour(job.job).fill;
      path.style.strokeOpacity = String(Math.max(0.35, Math.min(1, rate / link.gbps)));
      arcs.push(path);
    }
  }
  return [svg("circle", { class: "ring", cx: MIDDLE, cy: MIDDLE, r: radius, "stroke-width": width }), arcs];
}

// What a job that reports makes of its shift.
function keeps({ asked_s: asked, paced, measured_s: measured }) {
  const takes = measured === null || measured === undefined ? "" : `, measured ${interval(measured)}`;
  if (!asked) return takes;
  return `, ${paced === null || paced === undefined ? "reports nothing" : paced ? "paced" : "not paced"}${takes}`;
}

function circle(link) {
  const step = (OUTER - INNER) / link.jobs.length;
  const rings = link.jobs.map((job, at) => ring(job, OUTER - (at + 0.5) * step, Math.max(2, step - 3), link));
  const ms = (seconds) => `${number(seconds * 1000)} ms`;
  const said = link.jobs.map(({ job, arcs, iteration_s: whole, shift_s: shift }) =>
    `${job} sends ${counted(arcs.length, "time")} in an iteration of ${ms(whole)}, shifted by ${ms(shift)}`);
  const label = `Circle of ${link.name}: ${said.join("; ")}`;
  return el(
    "figure", { class: "circle" },
    el("figcaption", {}, el("strong", {}, link.name), el("span", {}, gbps(link.gbps))),
    svg(
      "svg",
      { viewBox: "0 0 220 220", role: "img", "aria-label": label }, rings,
      svg(
        "text", { class: "middle score", x: MIDDLE, y: MIDDLE + 1 },
        number(link.score, 2),
      ),
      svg("text", { class: "middle", x: MIDDLE, y: MIDDLE + 15 }, "score"),
    ),
    el(
      "ul", { class: "plain" },
      link.jobs.map((job) => el(
        "li", {}, jobLink(job.job),
        job.asked_s || job.shift_s ? ` shifted by ${ms(job.shift_s)} of ${ms(job.asked_s ?? job.iteration_s)}`
          : ` not shifted, ${ms(job.iteration_s)} an iteration`,
        keeps(job),
      )),
    ),
  );
}

export function circlesCard(links) {
  return el(
    "section", { class: "card pad" }, el("h2", {}, "Circles on shared links"),
    el(
      "p", { class: "hint" },
      "One ring a job, coloured where it sends. A score of 1 means that the jobs never ask for more than the link has.",
    ),
    el("div", { class: "circles" }, links.map(circle)),
  );
}
