// Elements. Text goes in as text: nothing here, or in any page, parses markup.

const SVG = "http://www.w3.org/2000/svg";

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => ![null, undefined, false, ""].includes(child));
}

export function el(name, attributes = {}, ...children) {
  return dress(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, name), attributes, children);
}

export function fill(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

// Change text only where it differs, so that a reader's selection and a screen reader's place are kept.
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Bring rows up to date: a row whose facts are as before stays the element it was, with its focus.
export function rows(body, items, key, facts, make) {
  const before = body.shown ?? new Map(), after = new Map();
  for (const item of items) {
    const name = key(item), print = JSON.stringify(facts(item)), old = before.get(name);
    after.set(name, old && old.print === print ? old : { print, row: make(item) });
  }
  body.shown = after;
  const wanted = [...after.values()].map((each) => each.row);
  const had = document.activeElement?.closest?.("tr");
  const link = had && body.contains(had) && !wanted.includes(had) ? [...before].find(([
    , each,
  ]) => each.row === had)?.[0] : undefined;
  const keep = new Set(wanted);
  for (const row of [...body.children]) if (!keep.has(row)) row.remove();
  wanted.forEach((row, index) => {
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  if (link !== undefined) after.get(link)?.row.querySelector("a, button")?.focus();
}
