// The evidence of an explanation, that of now before that of the placement; and the price of a placement beside those
// of the next best machines.

import { el, rows } from "./dom.js";
import { table } from "./parts.js";
import { few, number } from "./words.js";

const PLACED = "when it was placed: "; // how lines begin that are of that moment
const LINES = /^(price|next best|after that): |^[+-][\d,]+ GPU-s: /; // which the table says
const TERMS = {
  own: "Its own communication", others: "Slowing other jobs", types: "GPUs of other types",
  opened: "Opening idle machines", longer: "Machines in use longer", holes: "GPUs left hard to use",
};
const COLUMNS = ["Here", "Next best", "After that"];

// What is printed adds up: a total is the sum of its rounded terms.
function rounded(price) {
  const terms = Object.fromEntries(Object.entries(price.terms_gpu_s).map(([name, gpuS]) => [name, Math.round(gpuS)]));
  return { terms, total: Object.values(terms).reduce((sum, gpuS) => sum + gpuS, 0) };
}

function priceTable(price) {
  const sets = [price, ...price.next_best].slice(0, COLUMNS.length), sums = sets.map(rounded);
  const heads = [{ text: "Term" }, ...sets.map((_, at) => ({ text: COLUMNS[at], numeric: true }))];
  const listing = table("Price of this placement, in GPU-seconds", heads, { unseenCaption: false });
  const lines = [
    ...Object.entries(TERMS).filter(([name]) => sums.some((each) => each.terms[name])).map(([name, label]) => ({
      label, why: price.why[name] ?? "", cells: sums.map((each) => number(each.terms[name])),
    })),
    { label: "Total", why: "", cells: sums.map((each) => number(each.total)) },
    { label: "Machines", why: "", cells: sets.map((each) => few(Object.keys(each.gpus_on), 2)) },
  ];
  rows(
    listing.body, lines, (line) => line.label, (line) => line,
    (line) => el(
      "tr", {}, el("th", { scope: "row" }, line.label, line.why && el("p", { class: "hint" }, line.why)),
      line.cells.map((text) => el("td", { class: "number" }, text)),
    ),
  );
  return listing.node;
}

const list = (lines) => (lines.length ? el("ul", { class: "evidence" }, lines.map((line) => el("li", {}, line))) : null);

export function evidence(said) {
  const price = said.facts?.price, lines = said.evidence ?? [];
  const now = lines.filter((line) => !line.startsWith(PLACED));
  const then = lines.filter((line) => line.startsWith(PLACED)).map((line) => line.slice(PLACED.length));
  const untold = (line) => !(price && LINES.test(line));
  return [
    list(now.filter(untold)),
    then.length ? el("h3", { class: "then" }, "When it was placed") : null,
    list(then.filter(untold)),
    price ? el("div", { class: "price" }, priceTable(price)) : null,
  ];
}
