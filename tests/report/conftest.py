from collections.abc import Sequence

import pytest
from tests.report.synthetic import FakeResult, make_results


@pytest.fixture(scope="session")
def results() -> Sequence[FakeResult]:
    return tuple(make_results())
