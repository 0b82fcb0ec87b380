"""What is wrong with the fields of a job file, in words that people use."""

from collections.abc import Sequence
from typing import Any

from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE
from cranny.model.validate import MAX_GPUS
from cranny.model.yaml_file import MAX_NAME, Step, dotted, shown

MAX_BATCH = 10**9  # samples of a rank
MAX_PRIORITY = 1_000
MAX_PROCESSES = 4_194_304  # that Linux can have at all
MAX_RETRIES = 100

WORDS = {
    "command": "a list of arguments",
    "gpus": f"a whole number from 1 to {MAX_GPUS}",
    **dict.fromkeys(("tp", "pp", "least_gpus", "most_gpus"), "a whole number from 1 up"),
    **dict.fromkeys(("name", "queue", "gpu_type", "user"), f"printable text of 1 to {MAX_NAME} characters"),
    "model": "the name of a model",
    "batch": f"a whole number from 1 to {MAX_BATCH}",
    "gradient_buckets": "a list of pairs, ms and bytes",
    "gradient_buckets[]": "a pair of ms and bytes",
    "collective": "the name of a collective",
    "priority": f"a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}",
    **dict.fromkeys(("memory_gb", "cpus"), "a positive number"),
    "processes": f"a whole number from 1 to {MAX_PROCESSES}",
    "max_retries": f"a whole number from 0 to {MAX_RETRIES}",
    **dict.fromkeys(("shell", "torchrun", "movable"), "true or false"),
    "checkpoint": "`none`, or a mapping with signal and grace_s",
    "signal": "SIGTERM, SIGUSR1 or SIGUSR2",
    "speeds": "a mapping of GPU types to numbers",
    "speeds[]": "a positive number",
    "same_rack": "`required` or `preferred`",
    "spread": "a whole number of racks from 2 up",
    "exclude": "a list of machine names",
    "features": "a list of names",
    "features[]": "the name of a feature",
    **dict.fromkeys(("partition", "reservation"), f"printable text of 1 to {MAX_NAME} characters"),
    "per_machine": f"a whole number of GPUs from 1 to {MAX_GPUS_PER_MACHINE}",
    "resources": "a mapping of names to whole numbers",
    "resources[]": "a whole number from 1 up",
    **dict.fromkeys(("env", "secrets"), "a mapping of names to text"),
    "cwd": "an absolute path",
    **dict.fromkeys(("constraints", "profile"), "a mapping of fields"),
    "order": "the name of a queue order",
    "exclude[]": "the name of a machine",
    "machines[]": "the name of a machine, or its index",
    "options[]": "true or false, a number, or text",
}
# What pydantic calls the kinds of values, for fields that have no words of their own.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping of fields",
    "model": "a mapping of fields",
}
_FREE = frozenset(
    {"env", "secrets", "options", "speeds", "resources"}
)  # below these, names are the user's, whatever fields are called
_BOUNDS = {
    "greater_than": ("gt", "more than {}{}"),
    "greater_than_equal": ("ge", "{}{} or more"),
    "less_than": ("lt", "less than {}{}"),
    "less_than_equal": ("le", "at most {}{}"),
}


def field_errors(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Say what is wrong with each field, with the way to it."""
    found = []
    for each in errors:
        steps = way_to(each["loc"])
        if each["type"] == "missing":
            problem = "is missing"
        elif each["type"] == "extra_forbidden":
            problem = "is not a known field"
        elif each["type"] == "value_error" and str(each["ctx"]["error"]):
            problem = str(each["ctx"]["error"])
        elif each["type"] in {"too_long", "string_too_long"}:
            parts = "entries" if each["type"] == "too_long" else "characters"
            problem = f"is longer than {each['ctx']['max_length']} {parts}"
        else:
            value = each["input"]
            written = str(value).lower() if isinstance(value, bool) else shown(value)  # as in a job file
            problem = f"must be {_wanted(steps, each)}, not {written}"
            if each["type"] == "string_type" and isinstance(value, bool | int | float):
                problem += ": put it in quotes"
        found.append({"field": dotted(steps), "problem": problem})
    return found


def way_to(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Leave out of the way to a field how pydantic calls the forms it may have, and where it came from."""
    if steps[:1] == ("body",):
        steps = steps[1:]
    if steps[:1] in {("command",), ("machines",)}:
        return (*steps[:1], *(step for step in steps[1:] if isinstance(step, int)))
    if steps[:1] == ("checkpoint",):
        return (*steps[:1], *steps[2:])
    most = {"options": 2, "status": 1}
    return steps[: most.get(str(steps[0]))] if steps else steps


def _wanted(steps: tuple[Step, ...], error: Any) -> str:
    """Say in words what a value must be: as we say it of its field, or else as the error has it."""
    words = WORDS.get(str(steps[-1])) if steps else "a mapping of fields"
    if len(steps) > 1 and (isinstance(steps[-1], int) or steps[0] in _FREE):
        within = next((step for step in reversed(steps[:-1]) if isinstance(step, str)), "")
        words = WORDS.get(f"{within}[]", "text")
    if words is not None:
        return words
    kind, context = error["type"], error.get("ctx", {})
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    seconds = " seconds" if steps and str(steps[-1]).endswith("_s") else ""
    if kind in _BOUNDS:
        name, bound = _BOUNDS[kind]
        if kind != "greater_than" or context[name] != 0:
            least_or_most = context[name]
            plain = f"{least_or_most:.12g}" if isinstance(least_or_most, float) else least_or_most
            return bound.format(plain, seconds)
        number = "a positive number"
    else:
        number = _KINDS.get(kind.partition("_")[0], "text")
    return f"{number} of{seconds}" if seconds and "number" in number else number
