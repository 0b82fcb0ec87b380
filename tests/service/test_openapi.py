"""Whatever a client sends, by the document or against it, the service does not fall over."""

import json
from typing import Any

import httpx
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from tests.examples import examples
from tests.service.conftest import Serve

ENDLESS = r"/api/v1/events"  # a stream that goes on as long as the client listens
quick = settings(max_examples=8, database=None, suppress_health_check=list(HealthCheck))


def test_no_request_by_the_document_gives_an_error_of_the_server(serve: Serve) -> None:
    site = serve()
    site.running.submit(user="root")
    schema = schemathesis.openapi.from_url(f"{site.url}/openapi.json").exclude(path_regex=ENDLESS)
    headers = {"Authorization": f"Bearer {site.tokens['root']}"}
    asked: list[str] = []
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]

        @quick
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            asked.append(case.path)
            case.call_and_validate(headers=headers, checks=[not_a_server_error])

        ask()
    assert len(set(asked)) > 20
    assert site.running.service.ready


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(
    ["command", "shell", "gpus", "env", "constraints", "profile", "tp", "least_gpus", "name", "x"]
)
bodies = values | st.dictionaries(fields, values, max_size=6).map(
    lambda made: {"command": ["a"], "gpus": 1, **made}
)


def test_no_fuzzed_job_gives_an_error_of_the_server(serve: Serve) -> None:
    site = serve()
    with site.client("ann") as ann:

        @settings(quick, max_examples=examples(60))
        @given(bodies, st.sampled_from(["jobs", "plan"]))
        def ask(body: Any, where: str) -> None:
            content = json.dumps(body)  # with Infinity and other things that are no JSON
            headers = {"Content-Type": "application/json"}
            answer: httpx.Response = ann.post(f"/api/v1/{where}", content=content, headers=headers)
            assert answer.status_code in {200, 201, 422}, answer.text

        ask()
    assert site.running.service.ready
