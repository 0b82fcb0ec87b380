// All jobs of one kind, a page at a time.

import { ask } from "./api.js";
import { el, fill, say } from "./dom.js";
import { JobTable, KIND_NAMES, showCounts, STATUSES } from "./job_table.js";
import { choice } from "./parts.js";
import * as store from "./store.js";
import { counted, number } from "./words.js";

const PAGE = 100;

export function jobsPage(scope, main, _, query) {
  const place = el("div"), readout = el("p", { class: "readout", role: "status" }), foot = el("p", { class: "more" });
  const user = el("input", { id: "jobs-user", type: "text", size: "12", autocomplete: "off", spellcheck: "false" });
  const kinds = Object.keys(KIND_NAMES);
  let kind = kinds.includes(query.get("show")) ? query.get("show") : "waiting";
  let pages = 1;
  let shown;
  let list;
  let end = () => {};
  const load = async () => {
    const asked = {
      status: STATUSES[kind], limit: Math.min(1000, PAGE * pages), newest: kind === "over" ? true : undefined,
      user: user.value.trim(),
    };
    const first = await ask("jobs", { query: asked });
    while (first.jobs.length < PAGE * pages && first.next) {
      const next = await ask("jobs", { query: { ...asked, after: first.next } });
      first.jobs.push(...next.jobs);
      first.next = next.next;
    }
    return first;
  };
  const show = ({ jobs, total, next }) => {
    shown.show(jobs);
    say(
      readout,
      jobs.length < total ? `The first ${number(jobs.length)} of ${counted(total, "job")}.` : `${counted(total, "job")}.`,
    );
    if (!next) fill(foot);
    else if (!foot.firstChild) fill(
      foot,
      el(
        "button",
        { class: "button", type: "button", on: { click: () => { pages += 1; list.touch(0); } } }, `Show ${PAGE} more`,
      ),
    );
  };
  const pick = (chosen) => {
    kind = chosen;
    pages = 1;
    end();
    shown = new JobTable(kind);
    fill(place, shown.place);
    list = new store.Resource(load, { gap: 1000 });
    end = list.watch(show);
  };
  const tabs = choice("Jobs shown", Object.entries(KIND_NAMES), kind, pick);
  scope.watch(store.cluster, ({ counts }) => {
    showCounts(tabs.buttons, counts);
  });
  scope.listen(user, "change", () => pick(kind));
  scope.every(5000, () => shown.tick());
  scope.ends.push(() => end());
  pick(kind);
  fill(
    main, el("h1", { tabindex: "-1" }, "Jobs"),
    el(
      "section", { class: "card pad" },
      el("div", { class: "head" }, tabs.node, el("label", { for: "jobs-user" }, "Only of user ", user)),
      readout, place, foot,
    ),
  );
  return "Jobs";
}
