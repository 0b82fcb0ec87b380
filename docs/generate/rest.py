"""The reference of the REST interface, from the OpenAPI document of its routes."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from docs.generate.markdown import code, table
from fastapi import APIRouter, FastAPI

import cranny.service.api
from cranny.version import VERSION

INTRODUCTION = """# REST

What `cranny serve` answers, from the OpenAPI document that it also serves at `/openapi.json`. Errors are
`application/problem+json` with one line in `detail`. [The service](../use/service.md#rest) says how lists,
streams, repeated requests and predictions work.
"""


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document of all routes, made without a running service."""
    app = FastAPI(title="cranny", version=VERSION)
    package = cranny.service.api
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, APIRouter):
                app.include_router(value)
    return app.openapi()


def page() -> str:
    """Return the page: an overview, one section a request, then the values that they exchange."""
    document = openapi()
    requests = [
        (path, method.upper(), each) for path, ways in document["paths"].items() for method, each in ways.items()
    ]
    overview = table(
        ("request", "does"),
        [
            (f"[{code(f'{verb} {path}')}](#{_anchor(verb, path)})", each["summary"])
            for path, verb, each in requests
        ],
    )
    schemas = document.get("components", {}).get("schemas", {})
    parts = [INTRODUCTION, overview, *(_request(*each) for each in requests), "## Values\n"]
    return "\n".join([*parts, *(_schema(name, schema) for name, schema in sorted(schemas.items()))])


def _anchor(verb: str, path: str) -> str:
    return "-".join([verb.lower(), *path.replace("{", "").replace("}", "").strip("/").split("/")])


def _request(path: str, verb: str, each: dict[str, Any]) -> str:
    parts = [f"## {code(f'{verb} {path}')} {{#{_anchor(verb, path)}}}\n", each.get("description", "") + "\n"]
    given = [
        (code(found["name"]), found["in"], _type(found["schema"]), found.get("description", ""))
        for found in each.get("parameters", ())
    ]
    if body := each.get("requestBody"):
        for kind, content in body["content"].items():
            given.append(("body", kind, _type(content["schema"]), ""))
    if given:
        parts.append(table(("parameter", "in", "type", "meaning"), given))
    answers = [(status, answer["description"], _content(answer)) for status, answer in each["responses"].items()]
    return "\n".join([*parts, table(("status", "meaning", "body"), answers)])


def _content(answer: dict[str, Any]) -> str:
    return ", ".join(
        _type(content["schema"]) for content in answer.get("content", {}).values() if "schema" in content
    )


def _schema(name: str, schema: dict[str, Any]) -> str:
    needed = set(schema.get("required", ()))
    rows = [
        (code(field), _type(value), "yes" if field in needed else "", value.get("description", ""))
        for field, value in schema.get("properties", {}).items()
    ]
    parts = [f"### {name}\n", schema.get("description", "") + "\n"]
    return "\n".join([*parts, table(("field", "type", "needed", "meaning"), rows) if rows else ""])


def _type(schema: dict[str, Any]) -> str:
    if name := schema.get("$ref", "").rpartition("/")[2]:
        return f"[{name}](#{name.lower()})"
    if either := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(map(_type, either))
    if choices := schema.get("enum"):
        return " or ".join(code(str(choice)) for choice in choices)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
