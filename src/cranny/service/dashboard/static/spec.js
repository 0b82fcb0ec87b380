// The form of a job, and the spec that it makes.

import { el, fill } from "./dom.js";

// Split a command line into arguments as a shell would: spaces part them, quotes and backslashes keep them together.
export function split(line) {
  const found = [];
  let word = null, quote = "";
  for (let at = 0; at < line.length; at += 1) {
    const letter = line[at];
    if (quote) {
      if (letter === quote) quote = "";
      else if (letter === "\\" && quote === "\"" && /["\\]/.test(line[at + 1] ?? "")) word += line[at += 1];
      else word += letter;
    } else if (letter === "'" || letter === "\"") {
      quote = letter;
      word ??= "";
    } else if (letter === "\\" && at + 1 < line.length) word = (word ?? "") + line[at += 1];
    else if (/\s/.test(letter)) {
      if (word !== null) found.push(word);
      word = null;
    } else word = (word ?? "") + letter;
  }
  if (word !== null) found.push(word);
  return found;
}

function field(id, label, control, hint) {
  control.id = `spec-${id}`;
  control.name = id;
  if (hint) control.setAttribute("aria-describedby", `spec-${id}-hint`);
  return el(
    "p", { class: "field" }, el("label", { for: control.id }, label), control,
    hint ? el("span", { class: "hint", id: `spec-${id}-hint` }, hint) : null,
  );
}

const numberBox = (value, least = 1) => el(
  "input",
  { type: "number", value, min: least, step: "1", inputmode: "numeric" },
);
const textBox = (more = {}) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...more });
const options = (names, chosen = "") => names.map((name) => el(
  "option", { value: name, selected: name === chosen }, name,
));

export class SpecForm {
  constructor() {
    const box = this.box = {
      gpus: numberBox(8), name: textBox(),
      command: textBox({ placeholder: "python train.py --epochs 3" }),
      minutes: el("input", { type: "number", min: "0", step: "any" }), model: el("select"), collective: el("select"),
      tp: numberBox(1), pp: numberBox(1),
      priority: el("input", { type: "number", value: "0", step: "1" }), queue: textBox(),
      same_rack: el("select", {}, el("option", { value: "" }, "no constraint"), options(["preferred", "required"])),
      spread: el("input", { type: "number", min: "2", step: "1" }), exclude: textBox(),
    };
    box.gpus.required = true;
    this.fields = [
      field("gpus", "GPUs", box.gpus), field("model", "Model", box.model),
      field("minutes", "Minutes it will take", box.minutes, "An estimate; empty if you do not know."),
      field("command", "Command", box.command, "Needed to submit, not to ask. Run without a shell."),
      field("name", "Name", box.name),
      el(
        "details", {}, el("summary", {}, "Parallelism and constraints"),
        el(
          "div", { class: "fields" }, field("collective", "Collective", box.collective),
          field("tp", "Tensor-parallel", box.tp), field("pp", "Pipeline-parallel", box.pp),
          field("priority", "Priority", box.priority), field("queue", "Queue", box.queue),
          field("same_rack", "Same rack", box.same_rack),
          field("spread", "Spread over racks", box.spread, "At least so many; empty for any."),
          field("exclude", "Not on machines", box.exclude, "Names, with spaces between."),
        ),
      ),
    ];
    this.choices({ models: [], collectives: [] });
  }

  choices({ models, collectives }) {
    const { model, collective } = this.box, was = [model.value, collective.value];
    fill(model, el("option", { value: "" }, "not said"), options(models, was[0]));
    fill(collective, el("option", { value: "" }, "not said"), options(collectives, was[1]));
  }

  spec() {
    const { box } = this;
    const text = (name) => box[name].value.trim();
    const made = { command: split(text("command")), gpus: Number(text("gpus")) };
    for (const name of ["name", "model", "collective", "queue"]) if (text(name)) made[name] = text(name);
    for (const name of ["tp", "pp"]) if (Number(text(name)) !== 1 && text(name)) made[name] = Number(text(name));
    if (Number(text("priority"))) made.priority = Number(text("priority"));
    if (Number(text("minutes"))) made.duration_s = Number(text("minutes")) * 60;
    const constraints = {};
    if (text("same_rack")) constraints.same_rack = text("same_rack");
    if (Number(text("spread"))) constraints.spread = Number(text("spread"));
    if (text("exclude")) constraints.exclude = text("exclude").split(/[\s,]+/);
    if (Object.keys(constraints).length) made.constraints = constraints;
    return made;
  }
}
