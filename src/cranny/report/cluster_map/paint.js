// How one machine of the map is painted.

import { heat, jobColour, shades } from "./colours.js";

const FULL = "#5b9bb5"; // a machine's held share, where GPUs are too small to show

function hole(pen, x, y, wide, high) {
  const { hole: colour } = shades();
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.globalAlpha = 0.75;
  if (high < 6) {
    pen.fillStyle = colour;
    pen.fillRect(x, y, wide, high);
  } else {
    pen.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
    pen.beginPath();
    pen.moveTo(x + 0.5, y + high - 0.5);
    pen.lineTo(x + wide - 0.5, y + 0.5);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function blank(pen, x, y, wide, high) {
  pen.strokeStyle = shades().blank;
  pen.lineWidth = 1;
  pen.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
}

// A machine that takes no jobs: drained machines are struck out once, failed ones crossed out.
function down(pen, x, y, wide, high, state) {
  const colours = shades();
  pen.strokeStyle = state === "failed" ? colours.alarm : colours.soft;
  pen.lineWidth = Math.min(2, high / 5);
  pen.beginPath();
  pen.moveTo(x, y + high);
  pen.lineTo(x + wide, y);
  if (state === "failed") {
    pen.moveTo(x, y);
    pen.lineTo(x + wide, y + high);
  }
  pen.stroke();
}

// A GPU that a job of the what-if page would get: a strong frame with a dot.
function ghost(pen, x, y, wide, high) {
  const colours = shades();
  if (high < 10) {
    pen.fillStyle = colours.strong;
    pen.fillRect(x, y, wide, high);
    return;
  }
  pen.fillStyle = colours.card;
  pen.fillRect(x, y, wide, high);
  pen.strokeStyle = pen.fillStyle = colours.strong;
  pen.lineWidth = 2;
  pen.strokeRect(x + pen.lineWidth / 2, y + pen.lineWidth / 2, wide - pen.lineWidth, high - pen.lineWidth);
  pen.fillRect(x + wide / 2 - high * 0.18, y + high * 0.32, high * 0.36, high * 0.36);
}

function uplink(pen, x, y, wide, high, share) {
  const colours = shades();
  pen.fillStyle = colours["heat-0"];
  pen.fillRect(x, y, wide, high);
  if (!(share > 0)) return;
  const full = Math.max(1, Math.min(1, share) * high);
  pen.fillStyle = colours[`heat-${heat(share)}`];
  pen.fillRect(x, y + high - full, wide, full);
}

function names(pen, slots, x, y, layout, lit) {
  const { cell, wide, across } = layout;
  pen.font = `${Math.min(12, cell * 0.42)}px ${shades().font}`;
  pen.textBaseline = "middle";
  let from = 0;
  while (from < slots.length) {
    let to = from + 1;
    while (to < slots.length && slots[to] === slots[from] && to % across !== 0) to += 1;
    const job = slots[from], width = (to - from) * wide;
    if (job !== null && pen.measureText(job).width <= width - 6 && (!lit || lit === job)) {
      pen.fillStyle = jobColour(job).ink;
      pen.fillText(job, x + (from % across) * wide + 4, y + Math.floor(from / across) * cell + cell / 2);
    }
    from = to;
  }
  pen.textBaseline = "alphabetic";
}

function shortened(pen, text, width) {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

export const rackFont = () => `10.5px ${shades().font}`;

export function rackName(pen, label, text, share) {
  const colours = shades();
  pen.font = rackFont();
  pen.fillStyle = colours.soft;
  pen.fillText(shortened(pen, text, label.width), label.x, label.y + 10);
  if (share === undefined) return;
  pen.fillStyle = colours["heat-0"];
  pen.fillRect(label.x, label.y + 13.5, label.width, 2.5);
  pen.fillStyle = colours[`heat-${heat(share)}`];
  if (share > 0) pen.fillRect(label.x, label.y + 13.5, Math.max(1.5, Math.min(1, share) * label.width), 2.5);
}

export function paintMachine(pen, node, place, layout, { lit, ghosts, dim }) {
  const { cell, across, head, bar } = layout, { x, wide, high } = place;
  if (!layout.gpus) {
    square(pen, node, place, lit, ghosts);
    return;
  }
  const y = place.y + head, tall = high - head, columns = Math.min(node.slots.length, across) * layout.wide;
  if (head) {
    const colours = shades();
    pen.font = `11.5px ${colours.font}`;
    pen.fillStyle = node.state === "up" ? colours.soft : colours.ink;
    const name = node.state === "up" ? node.name : `${node.name} · ${node.state}`, shown = shortened(pen, name, wide);
    if (shown === name || shown.length > 5) pen.fillText(shown, x, place.y + 12);
  }
  const used = node.slots.some((job) => job !== null), line = cell >= 5 ? 1 : 0;
  const broad = layout.wide - line, size = cell - line;
  if (!used && !ghosts) blank(pen, x, y, columns - 1, tall - (cell >= 6 ? 1 : 0));
  else node.slots.forEach((job, slot) => {
    const left = x + (slot % across) * layout.wide, top = y + Math.floor(slot / across) * cell;
    if (ghosts?.has(slot)) ghost(pen, left, top, broad, size);
    else if (job === null) hole(pen, left, top, broad, size);
    else {
      // The GPUs of a job that lie side by side make one block, with a faint line between them.
      const joined = cell >= 5 && node.slots[slot + 1] === job && (slot + 1) % across !== 0;
      pen.fillStyle = jobColour(job).fill;
      pen.globalAlpha = dim || (lit && lit !== job) ? 0.28 : 1;
      pen.fillRect(left, top, joined ? layout.wide : broad, size);
      pen.fillStyle = shades().card;
      pen.globalAlpha = 0.45;
      if (joined) pen.fillRect(left + broad, top, 1, size);
      pen.globalAlpha = 1;
    }
  });
  if (ghosts && cell < 12) {
    pen.strokeStyle = shades().strong;
    pen.lineWidth = 1.5;
    pen.strokeRect(x - 0.75, y - 0.75, columns + 1, tall + 1);
  }
  if (cell >= 20 && !dim) names(pen, node.slots, x, y, layout, lit);
  if (node.state !== "up") down(pen, x, y, columns - 1, tall - 1, node.state);
  if (bar) uplink(pen, x + wide - bar, y, bar, tall - (cell >= 5 ? 1 : 0), node.uplink_use_gbps / node.uplink_gbps);
}

function square(pen, node, { x, y, wide, high }, lit, ghosts) {
  const colours = shades(), used = node.slots.length - node.free;
  if (used === 0 && !ghosts) {
    pen.globalAlpha = 0.45;
    pen.fillStyle = colours.blank;
    pen.fillRect(x, y, wide, high);
  } else {
    const full = high * used / node.slots.length, dim = lit && !node.slots.includes(lit);
    pen.globalAlpha = dim ? 0.3 : 1;
    pen.fillStyle = ghosts ? colours.strong : colours.hole;
    pen.fillRect(x, y, wide, high - full);
    pen.fillStyle = FULL;
    pen.fillRect(x, y + high - full, wide, full);
  }
  pen.globalAlpha = 1;
  if (node.state !== "up") down(pen, x, y, wide, high, node.state);
}
