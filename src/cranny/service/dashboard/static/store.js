// What the pages know of the service, loaded again when an event says that it may have changed.

import { ask } from "./api.js";
import { setClock } from "./words.js";

const all = new Set();
export const RETRY_MS = 2000;
let onTrouble = () => {};
let onWell = () => {};

export function whenTrouble(trouble, well) {
  onTrouble = trouble;
  onWell = well;
}

// One resource of the service with its watchers; it is fetched only while it has some.
export class Resource {
  constructor(load, { gap = 400, cares = () => true } = {}) {
    Object.assign(
      this,
      {
        load, gap, cares, value: undefined, watchers: new Set(), timer: 0, due: 0, busy: false,
        again: Infinity, last: -Infinity,
      },
    );
  }

  watch(show) {
    all.add(this);
    this.watchers.add(show);
    if (this.value !== undefined) show(this.value);
    this.touch();
    return () => {
      this.watchers.delete(show);
      if (this.watchers.size === 0) all.delete(this);
    };
  }

  // Load soon: at once if the last load is long over, otherwise when the gap has passed.
  // What a user asks for at once does not wait for a load that is planned for later.
  touch(after = this.gap) {
    if (this.busy) {
      this.again = Math.min(this.again, after);
      return;
    }
    const due = this.last + after;
    if (this.timer && this.due <= due) return;
    clearTimeout(this.timer);
    this.due = due;
    this.timer = setTimeout(() => this.refresh(), Math.max(0, due - performance.now()));
  }

  async refresh() {
    this.timer = 0;
    if (this.watchers.size === 0 || document.hidden) return;
    this.busy = true;
    this.again = Infinity;
    const began = performance.now();
    try {
      this.value = await this.load();
      onWell(this);
    } catch (error) {
      onTrouble(this, error);
      if (error.status !== 404) setTimeout(() => this.touch(), RETRY_MS);
      return;
    } finally {
      this.busy = false;
      this.last = performance.now();
      // A slow answer is asked for less often: the service has other work.
      this.wait = Math.max(this.gap, 6 * (this.last - began));
    }
    for (const show of [...this.watchers]) show(this.value);
    if (this.again < Infinity) this.touch(this.again && this.wait);
  }
}

export function changed(event) {
  for (const resource of all) if (resource.cares(event)) resource.touch(resource.wait);
}

export function touchAll() {
  for (const resource of all) resource.touch(0);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) touchAll(); });

async function allNodes() {
  const nodes = [];
  let after;
  do {
    const page = await ask("nodes", { query: { limit: 1000, after } });
    nodes.push(...page.nodes);
    after = page.next;
  } while (after !== null && after !== undefined);
  return nodes;
}

export const cluster = new Resource(async () => {
  const said = await ask("cluster");
  setClock(said.now_s);
  return said;
}, { gap: 250 });
export const nodes = new Resource(allNodes);
export const links = new Resource(async () => (await ask("links")).links, { gap: 1500 });
export const me = new Resource(() => ask("me"), { cares: () => false });
export const models = new Resource(() => ask("models"), { cares: () => false });

export function jobs(query, gap = 400) {
  return new Resource(() => ask("jobs", { query }), { gap });
}

// The latest changes, newest first, and whether they come in live.
export const changes = { list: [], watchers: new Set() };
const MOST_CHANGES = 60;

export function noteChange(event) {
  changes.list.unshift(event);
  changes.list.length = Math.min(changes.list.length, MOST_CHANGES);
  for (const show of changes.watchers) show(changes.list);
}

// What a page opened, to be closed when it is left.
export class Scope {
  ends = [];
  open = true;

  watch(resource, show) { this.ends.push(resource.watch((value) => { if (this.open) show(value); })); }

  listen(target, type, listener) {
    target.addEventListener(type, listener);
    this.ends.push(() => target.removeEventListener(type, listener));
  }

  every(ms, act) {
    const timer = setInterval(() => { if (!document.hidden) act(); }, ms);
    this.ends.push(() => clearInterval(timer));
  }

  sizes(node, act) {
    const observer = new ResizeObserver(() => requestAnimationFrame(() => { if (this.open) act(); }));
    observer.observe(node);
    this.ends.push(() => observer.disconnect());
  }

  end() {
    this.open = false;
    for (const end of this.ends) end();
    this.ends = [];
  }
}
