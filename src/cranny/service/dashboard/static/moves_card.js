// Moves of running jobs that save more than they cost; an admin can have them made.

import { ask } from "./api.js";
import { el, fill, rows, say } from "./dom.js";
import { action, jobLink, table } from "./parts.js";
import * as store from "./store.js";
import { counted, few, number } from "./words.js";

const GAP_MS = 60_000; // looking for moves is work for the service
const SHOWN = 12;
const HEADS = [
  { text: "Job" }, { text: "GPUs", numeric: true }, { text: "From" }, { text: "To" }, { text: "For" },
  { text: "Gain, GPU-h", numeric: true }, { text: "Cost, GPU-h", numeric: true },
];
const PURPOSES = { empty: "an idle machine", free: "a machine idle sooner", gather: "less on links" };
const KINDS = ["placed", "ended", "moved", "stopped", "observed", "drained", "resumed", "cancelled"];

const money = (dollars) => `$${dollars.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;

function hours(gpuS) {
  const amount = gpuS / 3600;
  return number(amount, Math.abs(amount) < 10 ? 2 : 0);
}

// Moves that pay only together are a group: what it is for, and its gain, is on its first line.
function lines(groups) {
  return groups.flatMap((group, at) => group.moves.map((move, place) => ({
    ...move, key: `${at} ${move.job}`,
    purpose: place ? "together with the one above" : group.starts ? `room for ${group.starts}` : PURPOSES[group.purpose],
    gain: place ? "" : hours(group.gain.total_gpu_s),
  })));
}

function row(move) {
  const cell = (head, text, className = "") => el("td", { role: "cell", "data-head": head, class: className }, text);
  return el(
    "tr", { role: "row" }, cell("", jobLink(move.job), "first"), cell("GPUs", number(move.gpus), "number"),
    cell("from", few(Object.keys(move.from), 2), "place"), cell("to", few(Object.keys(move.to), 2), "place"),
    cell("for", move.purpose, "place"), move.gain ? cell("gain, GPU-h", move.gain, "number") : el("td", { role: "cell" }),
    cell("cost, GPU-h", hours(move.cost_gpu_s), "number"),
  );
}

function sum(found) {
  const idle = found.emptied.length
    ? ` ${counted(found.emptied.length, "machine")} would be idle, ${money(found.saved_money_per_hour)} an hour.` : "";
  return `${counted(found.moves, "move")}: gain ${hours(found.gain_gpu_s)} GPU-hours, ` +
    `restarts cost ${hours(found.cost_gpu_s)}.${idle} Machines in use for less time save ${money(found.saved_money)} in all.`;
}

export function movesCard(scope) {
  const readout = el("p", { class: "readout", role: "status" }, "Looking for moves …");
  const place = el("div"), bad = el("div"), buttons = el("div", { class: "buttons more" });
  const price = el("input", { id: "gpu-price", type: "number", min: "0", step: "any", value: "1" });
  const listing = table("Moves of running jobs that pay", HEADS, { className: "stacked" });
  const asked = () => ({ price_per_gpu_hour: Number(price.value) || 0 });
  let admin = false, runs = false, found = null;
  const moves = new store.Resource(async () => {
    try {
      return await ask("moves", { query: asked() });
    } catch (error) {
      if (error.status === 503) return found; // it looks for them already
      throw error;
    }
  }, { gap: GAP_MS, cares: (event) => KINDS.includes(event.kind) });
  const showButton = () => {
    const offered = Boolean(admin && runs && found?.moves);
    if (!offered) fill(buttons);
    else if (!buttons.firstChild) fill(buttons, action("Make these moves", bad, "moves", {
      body: asked,
      confirm: "Stop these jobs and start them again on their new machines? What pays then is moved.",
      done: (made) => {
        fill(bad, el("div", { class: "notice good", role: "status" }, `${counted(made.moves, "job")} moved.`));
        moves.touch(0);
      },
    }));
  };
  scope.watch(store.me, (me) => {
    admin = me.role === "admin";
    showButton();
  });
  scope.watch(store.cluster, ({ mode }) => {
    runs = mode === "run";
    showButton();
  });
  scope.watch(moves, (said) => {
    found = said;
    if (!found) return;
    const all = lines(found.groups);
    say(
      readout,
      all.length ? sum(found)
        : "No moves pay now. Only jobs move whose job file says that they may (movable: true).",
    );
    rows(listing.body, all.slice(0, SHOWN), (move) => move.key, (move) => move, row);
    fill(
      place, all.length ? listing.node : "",
      all.length > SHOWN ? el("p", { class: "hint" }, `and ${counted(all.length - SHOWN, "more move", "more moves")}`) : "",
    );
    showButton();
  });
  scope.listen(price, "change", () => moves.touch(0));
  return el(
    "section", { class: "card pad", "aria-label": "Moves" },
    el(
      "div", { class: "head" }, el("h2", {}, "Moves that pay"),
      el("label", { for: "gpu-price" }, "Dollars per GPU-hour ", price),
    ),
    readout, place, buttons, bad,
  );
}
