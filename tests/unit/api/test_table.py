"""The table of operations and the document agree."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

import pytest
import yaml
from rest_service import running_rest
from starlette.responses import Response

from tarn_api.answers import Whole
from tarn_api.endpoint import BASE, OWN_BASE
from tarn_api.operations.refused import REFUSED
from tarn_api.operations.table import HANDLERS, OWN_HANDLERS, PUBLIC, TABLE, Refusal
from tarn_api.requests import Routes
from tarn_rest.operations import OPERATIONS, OWN_OPERATIONS, Operation

DOCUMENT = Path(__file__).parents[3] / "protos" / "tarn_rest" / "lakefs.yaml"
OWN_DOCUMENT = DOCUMENT.with_name("tarn.yaml")
EVERY = [(BASE, each) for each in OPERATIONS] + [(OWN_BASE, each) for each in OWN_OPERATIONS]
BY_ID = {each.id: each for _, each in EVERY}


def in_document(document: Path) -> dict[str, tuple[str, str]]:
    paths = yaml.safe_load(document.read_text())["paths"]
    return {
        operation["operationId"]: (method.upper(), path)
        for path, item in paths.items()
        for method, operation in item.items()
        if method != "parameters"
    }


def test_every_operation_is_in_the_table_and_every_row_in_the_document() -> None:
    found, own = in_document(DOCUMENT), in_document(OWN_DOCUMENT)
    assert len(found) == 134
    assert not set(found) & set(own)
    assert set(TABLE) == set(found) | set(own)
    assert set(OWN_HANDLERS) == set(own)
    assert {each.id: (each.method, each.path) for each in OPERATIONS} == found
    assert {each.id: (each.method, each.path) for each in OWN_OPERATIONS} == own
    # One list has each.
    assert len(HANDLERS) + len(REFUSED) == len(found)


def test_the_document_holds_no_sentence() -> None:
    """Names, types and limits are facts; sentences are somebody's work."""
    words = [line.split() for line in DOCUMENT.read_text().splitlines() if "#" not in line]
    assert max(len([each for each in line if each.isalpha()]) for line in words) <= 2


@pytest.mark.parametrize("operation_id", [*HANDLERS, *OWN_HANDLERS])
def test_handlers_take_and_return_the_types_of_the_document(operation_id: str) -> None:
    operation = BY_ID[operation_id]
    handler = {**HANDLERS, **OWN_HANDLERS}[operation_id]
    hints = typing.get_type_hints(handler)
    names = list(inspect.signature(handler).parameters)
    assert hints["at"] is operation.parameters
    assert names == (["context", "at"] if operation.body is None else ["context", "at", "body"])
    if operation.body is not None:
        body = operation.body if operation.is_body_required else operation.body | None  # type: ignore[operator]
        assert hints["body"] == body
    answer = operation.answer if operation.answer is not None else type(None)
    assert hints["return"] in (answer, Response, Response | Whole)


def test_only_operations_without_credentials_in_the_document_are_public() -> None:
    assert {name for name in PUBLIC if not BY_ID[name].is_public} <= {"getAuthCapabilities"}
    assert {"healthCheck", "getSetupState", "getAuthCapabilities", "login"} == PUBLIC


def plausible(operation: Operation) -> str:
    """Returns the path of an operation with values."""
    return operation.path.replace("{", "a").replace("}", "z")


def test_every_path_leads_to_its_operation() -> None:
    routes = Routes(OPERATIONS)
    for operation in OPERATIONS:
        found, values = routes.find(operation.method, plausible(operation).encode())
        assert found is operation
        assert all(value == f"a{name}z" for name, value in values.items())
        assert len(values) == operation.path.count("{")


async def test_whoever_has_no_credentials_gets_nothing_but_what_is_public(tmp_path: Path) -> None:
    async with running_rest(tmp_path) as rest:
        for base, operation in EVERY:
            path = plausible(operation)
            answer = await rest.ask(operation.method, path, caller=None, base=base)
            if operation.id in PUBLIC:
                assert answer.status in (200, 204, 400), operation.id
            else:
                assert answer.status == 401, operation.id
                assert answer.message == "error authenticating request"
                assert answer.headers["www-authenticate"].startswith("Basic ")


async def test_what_is_refused_says_why(tmp_path: Path) -> None:
    async with running_rest(tmp_path) as rest:
        for _, operation in EVERY:
            row = TABLE[operation.id]
            if isinstance(row, Refusal):
                answer = await rest.ask(operation.method, plausible(operation))
                assert (answer.status, answer.message) == (501, row.reason)
                assert operation.id in row.reason
