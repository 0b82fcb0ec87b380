// Traffic between the ranks of a job in one iteration: a matrix of bytes, and the sums between machines as a table.

import { el, fill, rows, svg } from "./dom.js";
import { machineLink, table } from "./parts.js";
import { hideTip, showTip } from "./tip.js";
import { bytes, counted, few, gbps } from "./words.js";

const MOST_RANKS = 128;
const SIDE = 360;
const EDGE = 26;

// Pairs of ranks, or of machines where ranks are too many to draw.
function cells(traffic) {
  const machines = [...new Set(traffic.ranks)], place = new Map(machines.map((name, at) => [name, at]));
  const moved = (pairs, where) => pairs.map((pair) => ({
    a: where.get(pair.a), b: where.get(pair.b), bytes: pair.bytes,
  }));
  if (traffic.ranks.length > MOST_RANKS) return {
    names: machines, marks: machines.map((_, at) => at), groups: machines, pairs: moved(traffic.machines, place),
    word: "Machine",
  };
  // The ranks of a machine stand together.
  const home = (rank) => place.get(traffic.ranks[rank]);
  const marks = [...traffic.ranks.keys()].sort((one, other) => home(one) - home(other) || one - other);
  const groups = marks.map((rank) => traffic.ranks[rank]), where = new Map(marks.map((rank, at) => [rank, at]));
  return {
    names: marks.map((rank) => `rank ${rank} on ${traffic.ranks[rank]}`), marks, groups,
    pairs: moved(traffic.pairs, where), word: "Rank",
  };
}

function matrix(traffic) {
  const { names, marks, groups, pairs, word } = cells(traffic), step = (SIDE - EDGE) / names.length;
  const most = Math.max(...pairs.filter((pair) => groups[pair.a] !== groups[pair.b]).map((pair) => pair.bytes), 1);
  const squares = pairs.flatMap(({ a, b, bytes: sent }) => [[a, b], [b, a]].map(([row, column]) => svg(
    "rect",
    {
      x: (EDGE + column * step).toFixed(2), y: (EDGE + row * step).toFixed(2),
      width: Math.max(step - 0.6, 0.8).toFixed(2), height: Math.max(step - 0.6, 0.8).toFixed(2),
      class: groups[a] === groups[b] ? "inside" : `h${Math.max(1, Math.ceil(6 * sent / most))}`,
      on: {
        pointermove: (event) => showTip(
          [
            bytes(sent), [`${names[row]}`], [`${names[column]}`],
            [groups[a] === groups[b] ? "inside a machine" : "between machines"],
          ],
          event.clientX, event.clientY,
        ),
        pointerleave: hideTip,
      },
    },
  )));
  const lines = groups.flatMap((group, at) => (at && group !== groups[at - 1] ? [EDGE + at * step] : []))
    .map((at) => svg("path", { class: "grid-line", d: `M${EDGE} ${at}H${SIDE}M${at} ${EDGE}V${SIDE}` }));
  const every = Math.max(1, Math.ceil(names.length / 8));
  const texts = marks.flatMap((mark, at) => (at % every ? [] : [
    svg("text", { class: "middle", x: EDGE + (at + 0.5) * step, y: EDGE - 7 }, String(mark)),
    svg("text", { class: "end", x: EDGE - 5, y: EDGE + (at + 0.5) * step + 4 }, String(mark)),
  ]));
  return svg(
    "svg",
    {
      viewBox: `0 0 ${SIDE + 2} ${SIDE + 2}`, class: "matrix", role: "img",
      "aria-label": `${word} by ${word.toLowerCase()}: ${counted(pairs.length, "pair")} exchange data; ` +
        "the table has the bytes between machines",
    },
    svg("rect", { class: "frame", x: EDGE, y: EDGE, width: SIDE - EDGE, height: SIDE - EDGE }),
    lines, squares, texts,
  );
}

export function trafficCard() {
  const body = el("div", { class: "side-by-side" });
  const node = el("section", { class: "card pad" }, el("h2", {}, "Traffic of one iteration"), body);
  const show = (traffic) => {
    const listing = table(
      "Bytes between machines in one iteration, most first",
      [{ text: "From" }, { text: "To" }, { text: "Bytes", numeric: true }], { unseenCaption: false },
    );
    const sums = [...traffic.machines].sort((one, other) => other.bytes - one.bytes).slice(0, 50);
    rows(
      listing.body, sums, (pair) => `${pair.a} ${pair.b}`, (pair) => pair.bytes,
      (pair) => el(
        "tr", {}, el("td", {}, machineLink(pair.a)), el("td", {}, machineLink(pair.b)),
        el("td", { class: "number" }, bytes(pair.bytes)),
      ),
    );
    const inside = traffic.machines.length === 0;
    const used = few(traffic.links.map((link) => `${link.name} (${gbps(link.gbps)})`), 6);
    fill(
      body, traffic.pairs.length ? matrix(traffic) : null,
      el(
        "div", {},
        el(
          "p", { class: "readout" },
          inside ? "All traffic stays inside one machine."
            : `${bytes(traffic.cross_machine_bytes)} cross between machines. Links used: ${used}.`,
        ),
        inside ? null : listing.node,
        traffic.pairs.length ? el(
          "p", { class: "hint key-text" },
          "In the picture: blue inside a machine, warm colours between machines, the stronger the more.",
        ) : null,
      ),
    );
  };
  return { node, show };
}
