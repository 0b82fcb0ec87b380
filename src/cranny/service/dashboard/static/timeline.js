// What ran on which machine, and what is expected.

import { el, fill } from "./dom.js";
import { timelineCard } from "./timeline_card.js";

export function timelinePage(scope, main) {
  fill(main, el("h1", { tabindex: "-1" }, "Timeline"), timelineCard(scope).node);
  return "Timeline";
}
