"""What is written for other programs: tables in files, and JSON that keeps to its schema."""

import json
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from tests.analysis.whatif.test_what_if import STARTS, asked, log

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.export import export_tables, json_schema, write_tables
from cranny.analysis.whatif.prices import HOURS, MachinePrices, Prices
from cranny.analysis.whatif.schema_name import SCHEMA
from cranny.model.errors import InputError


@pytest.fixture(scope="module")
def answer() -> WhatIfAnswer:
    trace = log(STARTS, user=["ann", "bob", "ann", "bob"])
    return asked(trace, ("titan", "best-fit"), search=True, add=1)


def test_json_keeps_to_its_schema(answer: WhatIfAnswer) -> None:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    facts = json.loads(json.dumps(answer.facts(), allow_nan=False))
    assert facts["schema"] == SCHEMA == schema["$id"]
    jsonschema.validate(facts, schema)
    jsonschema.validate(json.loads(json.dumps(asked(log()).facts())), schema)


def test_what_lacks_a_field_is_refused(answer: WhatIfAnswer) -> None:
    facts = json.loads(json.dumps(answer.facts()))
    del facts["details"]["money"]["titan"]["boots"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(facts, json_schema())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_are_read_back_as_they_were(answer: WhatIfAnswer, tmp_path: Path, kind: str) -> None:
    written = write_tables(answer, tmp_path / "out", kind)
    names = {path.name for path in written}
    assert names == {f"{name}.{kind}" for name in export_tables(answer)} | {"what-if.json"}
    read = pl.read_csv if kind == "csv" else pl.read_parquet
    cases = read(tmp_path / "out" / f"cases.{kind}")
    assert cases["name"].to_list() == [case.name for case in answer.cases]
    jobs = read(tmp_path / "out" / f"jobs.{kind}")
    assert jobs.filter(pl.col("case") == "titan").height == 4
    money = read(tmp_path / "out" / f"money.{kind}")
    best_fit = money.filter(pl.col("case") == "best-fit")
    assert best_fit["saved_by_switching_off"][0] == pytest.approx(2.0 * 4 * 0.5)
    assert json.loads((tmp_path / "out" / "what-if.json").read_text())["schema"] == SCHEMA


def test_a_folder_that_cannot_be_written_is_named(answer: WhatIfAnswer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be written"):
        write_tables(answer, tmp_path / "file", "csv")


def test_prices_of_a_file_replace_the_price_of_an_hour() -> None:
    prices = Prices(MachinePrices((4.0,) * HOURS), least_off_s=900.0)
    details = asked(log(STARTS), prices=prices).details
    assert details.costs["best-fit"].saved.sum() == pytest.approx(4.0 * 4 * 0.5)
    assert not details.savings.of_case
    assert details.savings.why_none == "on which machines jobs ran is not in the log"
