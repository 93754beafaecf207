"""The published interface: what is stored is what is offered, and a change that breaks clients is noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import publish_rest
import pytest
from rest_service import running_rest

from tarn_api.operations.table import TABLE, Refusal

STORED = json.loads(publish_rest.STORED.read_text())


def test_the_stored_interface_is_the_one_that_is_offered() -> None:
    now = publish_rest.published()
    assert publish_rest.breaks(STORED, now) == [], "clients of the stored interface would break"
    assert publish_rest.STORED.read_text() == publish_rest.text_of(now), (
        "run `.venv/bin/python tools/openapi/publish_rest.py`"
    )


def test_it_has_every_operation_and_says_which_ones_are_not_offered() -> None:
    operations = {
        each["operationId"]: each
        for item in STORED["paths"].values()
        for method, each in item.items()
        if method != "parameters"
    }
    assert set(operations) == set(TABLE)
    for name, row in TABLE.items():
        reason = row.reason if isinstance(row, Refusal) else None
        assert operations[name].get("x-tarn-not-offered") == reason
        if reason is not None:
            assert list(operations[name]["responses"]) == ["default"]


async def test_the_openapi_document_is_served_without_a_login(tmp_path: Path) -> None:
    async with running_rest(tmp_path) as rest:
        answer = await rest.ask("GET", "/openapi.json", caller=None, base="")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.body == publish_rest.STORED.read_bytes()
        assert (await rest.ask("POST", "/openapi.json", caller=None, base="")).status == 405
        assert (await rest.ask("GET", "/openapi.yaml", caller=None, base="")).status == 404


COMMITS = "/api/v1/repositories/{repository}/branches/{branch}/commits"
BRANCHES = "/api/v1/repositories/{repository}/branches"


def schema(document: Any, name: str) -> Any:
    return document["components"]["schemas"][name]


def _gone(d: Any) -> None:
    del d["paths"][COMMITS]


def _not_offered(d: Any) -> None:
    d["paths"][COMMITS]["post"]["x-tarn-not-offered"] = "no"


def _needs_more(d: Any) -> None:
    schema(d, "CommitCreation")["required"].append("metadata")


def _tells_less(d: Any) -> None:
    del schema(d, "Commit")["properties"]["committer"]


def _tells_perhaps(d: Any) -> None:
    schema(d, "Commit")["required"].remove("committer")


def _other_type(d: Any) -> None:
    schema(d, "Commit")["properties"]["creation_date"]["type"] = "string"


def _parameter_gone(d: Any) -> None:
    d["paths"][BRANCHES]["get"]["parameters"] = []


def _parameter_needed(d: Any) -> None:
    new = {"in": "query", "name": "new", "required": True, "schema": {"type": "string"}}
    d["paths"][BRANCHES]["get"]["parameters"].append(new)


def _status_gone(d: Any) -> None:
    del d["paths"][COMMITS]["post"]["responses"]["201"]


@pytest.mark.parametrize(
    "change",
    [
        _gone,
        _not_offered,
        _needs_more,
        _tells_less,
        _tells_perhaps,
        _other_type,
        _parameter_gone,
        _parameter_needed,
        _status_gone,
    ],
)
def test_a_change_that_breaks_clients_is_found(change: Callable[[Any], None]) -> None:
    later = copy.deepcopy(STORED)
    change(later)
    assert publish_rest.breaks(STORED, later)


def test_an_addition_breaks_no_client() -> None:
    later = copy.deepcopy(STORED)
    later["paths"]["/api/tarn/v1/new"] = later["paths"]["/api/tarn/v1/session"]
    schema(later, "Commit")["properties"]["new"] = {"type": "string"}
    schema(later, "Commit")["required"].append("new")
    schema(later, "CommitCreation")["properties"]["new"] = {"type": "string"}
    new = {"in": "query", "name": "new", "schema": {"type": "string"}}
    later["paths"][BRANCHES]["get"]["parameters"].append(new)
    del later["paths"]["/api/v1/auth/groups"]["get"]["x-tarn-not-offered"]
    assert publish_rest.breaks(STORED, later) == []
