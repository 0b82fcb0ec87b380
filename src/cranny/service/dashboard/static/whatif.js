// What would happen if this job were submitted now; nothing is started until you say so.

import { ask } from "./api.js";
import { el, fill } from "./dom.js";
import { mapCard } from "./map_card.js";
import { jobLink, machineLink, refusal } from "./parts.js";
import { evidence } from "./price.js";
import { SpecForm } from "./spec.js";
import * as store from "./store.js";
import { clock, counted, until } from "./words.js";

function answer(plan, spec) {
  const said = plan.explanation, machines = [...new Set(plan.placement?.names ?? [])];
  const now = `It would start at once, on ${counted(machines.length, "machine")}.`;
  const title = plan.starts ? now : "It would have to wait.";
  return el(
    "section",
    { class: `card pad answer ${plan.starts ? "good" : "wait"}` }, el("h2", {}, title),
    el("p", { class: "finding" }, said.reason),
    machines.length ? el(
      "p", { class: "tags" }, machines.slice(0, 24).map(machineLink),
      machines.length > 24 ? ` and ${machines.length - 24} more` : "",
    ) : null,
    !plan.starts && said.predicted_start_s ? el(
      "p", {},
      `Predicted start: ${until(said.predicted_start_s)}, at ${clock(said.predicted_start_s)}.`,
    ) : null,
    plan.would_stop?.length ? el(
      "p", {},
      `It would stop ${counted(plan.would_stop.length, "job")}: `, plan.would_stop.map((job) => [jobLink(job), " "]),
    ) : null,
    evidence(said),
    said.next_step ? el("p", { class: "next" }, el("strong", {}, "What would help: "), said.next_step) : null,
    el(
      "details", {}, el("summary", {}, "The job file"),
      el("pre", { tabindex: "0" }, JSON.stringify(spec, null, 2)),
      el(
        "p", { class: "hint" },
        "Save it as job.yaml; cranny plan -f job.yaml asks the same, cranny submit job.yaml submits it.",
      ),
    ),
  );
}

export function whatIfPage(scope, main) {
  const form = new SpecForm();
  const place = el("div", { role: "status" });
  const submit = el("button", { type: "button", class: "button" }, "Submit this job");
  const cluster = mapCard(scope, { title: "Where it would go", tallest: 460, ghosts: true });
  const look = el("button", { class: "button primary" }, "See what would happen");
  const busy = (on) => { look.disabled = submit.disabled = on; };
  const act = async (work) => {
    busy(true);
    try {
      await work(form.spec());
    } catch (error) {
      cluster.map.showGhosts(null);
      fill(place, refusal(error));
    } finally {
      busy(false);
    }
  };
  const question = () => act(async (spec) => {
    const asked = spec.command.length ? spec : { ...spec, command: ["true"] }; // what it runs does not decide where
    const plan = await ask("plan", { method: "POST", body: asked });
    fill(place, answer(plan, asked));
    cluster.map.showGhosts(plan.placement);
  });
  submit.addEventListener("click", () => act(async (spec) => {
    if (!spec.command.length) {
      form.box.command.focus();
      fill(place, el("p", { class: "notice bad", role: "alert" }, "A job that is submitted needs a command."));
      return;
    }
    const job = await ask("jobs", { method: "POST", body: spec });
    cluster.map.showGhosts(null);
    fill(place, el("p", { class: "notice good" }, "Submitted as ", jobLink(job.id), "."));
  }));
  const box = el("form", {
    class: "card pad form", novalidate: true, "aria-label": "A hypothetical job",
    on: { submit: (event) => { event.preventDefault(); question(); } },
  },
    el(
      "p", { class: "hint" },
      "Describe a job and see whether it would start now, where, and if not, why. Nothing is started or stored.",
    ),
    form.fields, el("p", { class: "buttons" }, look, submit));
  scope.watch(store.models, (known) => form.choices(known));
  scope.watch(store.me, ({ role }) => { submit.hidden = role === "viewer"; });
  fill(
    main, el("h1", { tabindex: "-1" }, "What if"),
    el("div", { class: "split form-first" }, box, el("div", { class: "stack" }, place, cluster.node)),
  );
  return "What if";
}
