// Server-sent events over fetch: unlike EventSource this notices a dead line, and says when it waits to reconnect.

import { address, ask, headers, problemOf } from "./api.js";

const QUIET_MS = 40_000; // the service writes a comment every 15 s; longer silence means a dead line
const WAITS_MS = [500, 1000, 2000, 4000, 8000];

// Cut a stream of text into events. Returns what takes the next piece of text.
export function parser(emit) {
  let rest = "", event = {};
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (event.data !== undefined) emit(event);
        event = {};
      } else if (!line.startsWith(":")) {
        const colon = line.indexOf(":"), name = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        event[name] = name === "data" && event.data !== undefined ? `${event.data}\n${value}` : value;
      }
    }
  };
}

// The latest events of the log, oldest first, and the number of the last one.
export async function recent(most) {
  const { seq } = await ask("cluster"), found = [];
  const given = { Accept: "text/event-stream" }, after = Math.max(0, seq - most);
  const answer = await fetch(
    address("events", { after, limit: most, follow: false }),
    { headers: headers(given), credentials: "omit", cache: "no-store" },
  );
  if (!answer.ok) throw await problemOf(answer);
  parser((event) => found.push(JSON.parse(event.data)))(await answer.text());
  return { events: found.filter((event) => event.seq <= seq && event.kind !== "audit"), seq };
}

export class Stream {
  constructor({ onEvent, onState }) {
    Object.assign(this, { onEvent, onState, last: null, tries: 0, over: false });
  }

  async run() {
    this.onState("connecting");
    while (!this.over) {
      try {
        await this.read();
      } catch (error) {
        if (error.status === 401 || error.status === 403) {
          this.onState("denied");
          return;
        }
      }
      if (this.over) return;
      const wait = WAITS_MS[Math.min(this.tries, WAITS_MS.length - 1)];
      this.tries += 1;
      this.onState("reconnecting");
      await new Promise((done) => { setTimeout(done, wait); });
    }
  }

  async read() {
    const abort = new AbortController();
    let quiet;
    const heard = () => {
      clearTimeout(quiet);
      quiet = setTimeout(() => abort.abort(), QUIET_MS);
    };
    heard();
    try {
      const given = { Accept: "text/event-stream" };
      if (this.last !== null) given["Last-Event-ID"] = this.last;
      const answer = await fetch(
        address("events"),
        { headers: headers(given), credentials: "omit", cache: "no-store", signal: abort.signal },
      );
      if (!answer.ok) throw await problemOf(answer);
      this.tries = 0;
      this.onState("live");
      const take = parser((event) => {
        if (event.id !== undefined) this.last = event.id;
        this.onEvent(JSON.parse(event.data));
      });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        heard();
        take(value);
      }
    } finally {
      clearTimeout(quiet);
      abort.abort();
    }
  }
}
