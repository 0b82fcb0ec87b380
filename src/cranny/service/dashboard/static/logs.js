// The log of a rank, followed while it runs.

import { ask, segment } from "./api.js";
import { el, fill, say } from "./dom.js";
import { refusal } from "./parts.js";

const TAIL = 65536;
const MOST = 400_000; // characters kept in the page
const POLL_MS = 1000;
// Colours and cursor movements of terminals; carriage returns of progress bars start a line of their own.
const ESCAPES = /\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[@-Z\\-_])/g;

export function logsCard(scope, id) {
  const text = el(
    "pre",
    { class: "log", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Log of the chosen rank" },
  );
  const note = el("p", { class: "hint", role: "status" }), bad = el("div");
  const rank = el("select", { id: "log-rank" }), attempt = el("select", { id: "log-attempt" });
  const which = el("label", { for: "log-attempt", hidden: true }, "Attempt ", attempt);
  const follow = el("input", { type: "checkbox", id: "log-follow", checked: true });
  let offset = -TAIL, asked = 0, timer = 0, ranks = 0, running = true;

  const load = async () => {
    clearTimeout(timer);
    asked += 1;
    const mine = asked;
    try {
      const said = await ask(`jobs/${segment(id)}/logs`, {
        query: { rank: rank.value || 0, attempt: attempt.value, offset },
      });
      if (mine !== asked || !scope.open) return;
      fill(bad);
      add(said);
      if (!said.ended || said.text.length >= TAIL) timer = setTimeout(load, said.text.length >= TAIL ? 0 : POLL_MS);
      say(
        note,
        said.ended ? `The rank has ended${text.textContent ? "." : " and wrote nothing."}`
          : text.textContent ? "" : "Nothing written yet.",
      );
    } catch (error) {
      if (mine !== asked || !scope.open) return;
      fill(bad, error.status === 404 ? el("p", { class: "hint" }, error.message) : refusal(error));
      if (running) timer = setTimeout(load, 4 * POLL_MS);
    }
  };
  const add = (said) => {
    const gap = offset >= 0 && said.offset > offset;
    offset = said.next_offset;
    if (!said.text) return;
    if (gap) text.append("… (output that was deleted at the limit of the log)\n");
    text.append(said.text.replace(ESCAPES, "").replace(/\r(?!\n)/g, "\n"));
    const whole = text.textContent;
    if (whole.length > MOST) text.textContent = `… (the page keeps the end of a long log)\n${whole.slice(-MOST / 2)}`;
    if (follow.checked) text.scrollTop = text.scrollHeight;
  };
  const restart = () => {
    offset = -TAIL;
    text.textContent = "";
    load();
  };
  scope.listen(rank, "change", restart);
  scope.listen(attempt, "change", restart);
  scope.ends.push(() => clearTimeout(timer));
  const node = el(
    "section", { class: "card pad" }, el("h2", {}, "Logs"),
    el(
      "div", { class: "head" }, which, el("label", { for: "log-rank" }, "Rank ", rank),
      el("label", { class: "check" }, follow, "Stay at the end"),
    ),
    note, bad, text,
  );
  return {
    node,
    // List the attempts and ranks of a job; an older attempt that is shown stays shown.
    show(job) {
      const numbers = job.attempts.map((each) => each.attempt), newest = numbers.at(-1);
      running = job.ended_s === null;
      if (ranks !== job.gpus) {
        ranks = job.gpus;
        fill(rank, Array.from({ length: ranks }, (_, at) => el("option", { value: at }, String(at))));
      }
      if (newest === this.newest) return;
      const chosen = Number(attempt.value), stays = this.newest !== undefined && chosen !== this.newest;
      this.newest = newest;
      fill(attempt, numbers.map((number) => el("option", { value: number }, String(number))));
      attempt.value = String(stays ? chosen : newest);
      which.hidden = numbers.length < 2;
      if (!stays) restart();
    },
  };
}
