"""The table of S3 operations is complete and unambiguous, and the gateway does what it says."""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import botocore.loaders
import pytest
from gateway_lake import GatewayLake

from tarn.core.access.actions import Action
from tarn.core.access.policy import Grant
from tarn.core.errors import Kind, Reason, TarnError
from tarn_gateway import grants
from tarn_gateway.grants import require
from tarn_gateway.http import Headers
from tarn_gateway.operation import (
    COPY_SOURCE,
    About,
    Addressed,
    MissingRef,
    NotOffered,
    Operation,
)
from tarn_gateway.operations.not_offered import NOT_OFFERED
from tarn_gateway.operations.reference import REMARKS, describe
from tarn_gateway.operations.table import BY_NAME, OPERATIONS
from tarn_gateway.requests.address import Address
from tarn_gateway.requests.query import parse_query
from tarn_gateway.router import route
from tarn_gateway.s3error import S3Error

DOCUMENT = Path(__file__).parents[3] / "docs" / "user" / "s3.md"
UPLOAD = "0123456789abcdef0123456789abcdef"
VALUES = {"partNumber": "1", "uploadId": UPLOAD}
TARGETS = {Addressed.SERVICE: "/", Addressed.BUCKET: "/lake", Addressed.KEY: "/lake/main/a"}
ADDRESSES = {
    Addressed.SERVICE: Address("", ""),
    Addressed.BUCKET: Address("lake", ""),
    Addressed.KEY: Address("lake", "main/a"),
}
DELETE = b"<Delete><Object><Key>main/a</Key></Object></Delete>"

ELSEWHERE = {"ListDirectoryBuckets", "WriteGetObjectResponse"}
"""S3 Express and Object Lambda have addresses of their own."""

Row = Operation | NotOffered


def named(row: Row) -> str:
    return row.name


def query_of(row: Row) -> str:
    names = [name for name in row.selected_by.split() if name != COPY_SOURCE]
    return "&".join(f"{name}={VALUES[name]}" if name in VALUES else name for name in names)


def headers_of(row: Row) -> dict[str, str]:
    return {COPY_SOURCE: "/pond/v1/source"} if COPY_SOURCE in row.selected_by.split() else {}


@pytest.mark.parametrize("row", OPERATIONS, ids=named)
def test_every_row_is_reached_by_its_request(row: Operation) -> None:
    query = parse_query(query_of(row).encode())
    found = route(row.method, ADDRESSES[row.addressed], query, Headers(headers_of(row).items()))
    assert found is row


@pytest.mark.parametrize("row", NOT_OFFERED, ids=named)
def test_an_operation_that_is_not_offered_is_refused_by_name(row: NotOffered) -> None:
    query = parse_query(query_of(row).encode())
    with pytest.raises(S3Error) as caught:
        route(row.method, ADDRESSES[row.addressed], query, Headers([]))
    assert (caught.value.code, caught.value.extra) == ("NotImplemented", {"Operation": row.name})
    assert row.name in caught.value.message


def test_no_two_rows_match_one_request() -> None:
    rows: tuple[Row, ...] = (*OPERATIONS, *NOT_OFFERED)
    keys = Counter((row.addressed, row.method, frozenset(row.selected_by.split())) for row in rows)
    assert [key for key, count in keys.items() if count > 1] == []
    names = Counter(name for row in rows for name in (row.name, *row.others))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(BY_NAME) == len(OPERATIONS)


@functools.cache
def model() -> dict[str, Any]:
    """S3 as described by botocore."""
    found: dict[str, Any] = botocore.loaders.Loader().load_service_model("s3", "service-2")
    return found


def selected_in_the_model(name: str) -> tuple[Addressed, str, frozenset[str]]:
    """Returns address, method and parameters of an operation, in the form of the table."""
    operation = model()["operations"][name]
    path, _, query = operation["http"]["requestUri"].partition("?")
    addressed = {"/": Addressed.SERVICE, "/{Bucket}": Addressed.BUCKET}.get(path, Addressed.KEY)
    shape = model()["shapes"].get(operation.get("input", {}).get("shape"), {"members": {}})
    names = set(query.split("&")) if query else set()
    for member in shape.get("required", ()):
        about = shape["members"][member]
        # `id` and similar parameters select one of several items, not the operation.
        if about.get("location") == "querystring" and about["locationName"] in VALUES:
            names.add(about["locationName"])
        if about.get("locationName") == COPY_SOURCE:
            names.add(COPY_SOURCE)
    return addressed, operation["http"]["method"], frozenset(names - {"select-type=2"})


def test_every_operation_of_s3_has_a_row() -> None:
    """Fails when botocore learns a new operation: until it has a row, it may be taken for another one."""
    rows: tuple[Row, ...] = (*OPERATIONS, *NOT_OFFERED)
    known = {name: row for row in rows for name in (row.name, *row.others)}
    missing = set(model()["operations"]) - set(known) - ELSEWHERE
    assert missing == set()
    for name, row in known.items():
        if name in model()["operations"]:
            of_row = (row.addressed, row.method, frozenset(row.selected_by.split()))
            assert of_row == selected_in_the_model(name), name


# ---- the gateway does what a row says


class Recorder:
    """Denies everything, or everything except some actions; records the permission checks."""

    def __init__(self, *allowed: Action) -> None:
        self.allowed = allowed
        self.checks: list[tuple[Action, str]] = []

    def require(self, action: Action, resource: str) -> None:
        self.checks.append((action, resource))
        if action not in self.allowed:
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "not allowed")


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Any:
    def begin(*allowed: Action) -> Recorder:
        recorder = Recorder(*allowed)
        monkeypatch.setattr(
            Grant, "require", lambda _, action, resource: recorder.require(action, resource)
        )
        # It answers for paths that make no difference (`test_what_allows_all_allows_each`).
        monkeypatch.setattr(grants, "_may_read_all", lambda *_: False)
        return recorder

    return begin


async def ask(lake: GatewayLake, row: Operation, headers: dict[str, str] | None = None) -> Any:
    body = DELETE if row.about is About.KEYS else b""
    asked_for = ["prefix=main/dir/"] if row.about is About.REF else []
    query = "&".join(filter(None, [query_of(row), *asked_for]))
    sent = headers_of(row) | (headers or {})
    if row.about is About.FORM:
        return await lake.post("lake", {"key": "main/a"}, headers=headers)
    return await lake.ask(row.method, TARGETS[row.addressed], query, body, sent)


RESOURCES = {
    About.SERVICE: "repository/*",
    About.NAME: "repository/lake",
    About.BUCKET: "repository/lake",
    About.SETTINGS: "repository/lake",
    About.REF: "repository/lake/ref/main/object/dir/",
    About.KEYS: "repository/lake/branch/main/object/a",
}


def resource_of(row: Operation) -> str:
    if row.action is Action.WRITE_BUCKETS:
        return "bucket/lake"
    kind = "branch" if row.action is Action.WRITE_REPO else "ref"
    return RESOURCES.get(row.about, f"repository/lake/{kind}/main/object/a")


@pytest.mark.parametrize("row", OPERATIONS, ids=named)
async def test_the_action_of_a_row_is_asked_for_before_anything_is_done(
    lake: GatewayLake, record: Any, row: Operation
) -> None:
    recorder = record()
    reply = await ask(lake, row)
    assert recorder.checks == [(row.action, resource_of(row))]
    assert lake.graveler.calls == []
    if row.about is About.KEYS:
        assert reply.all("Code") == ["AccessDenied"]
    else:
        assert (reply.status, reply.line["code"]) == (403, "AccessDenied")


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.source is not None], ids=named)
async def test_the_source_of_a_copy_is_asked_for_by_itself(
    lake: GatewayLake, record: Any, monkeypatch: pytest.MonkeyPatch, row: Operation
) -> None:
    lake.create("pond", tags=("v1",))
    upload = await lake.ask("POST", "/lake/main/a", "uploads")
    monkeypatch.setitem(VALUES, "uploadId", upload.all("UploadId")[0])
    lake.graveler.calls.clear()
    recorder = record(row.action)
    reply = await ask(lake, row)
    assert recorder.checks[1:] == [(row.source, "repository/pond/ref/v1/object/source")]
    assert (reply.status, reply.code) == (403, "AccessDenied")
    assert "lookup" not in lake.graveler.calls


@pytest.mark.parametrize("row", OPERATIONS, ids=named)
async def test_a_condition_on_what_is_there_needs_the_right_to_read_it(
    lake: GatewayLake, record: Any, row: Operation
) -> None:
    """A row without `if_match` refuses a conditional write instead of ignoring the condition. The conditions of
    DeleteObjects are in its document (`test_conditional_deletes`)."""
    recorder = record(row.action)
    reply = await ask(lake, row, {"if-match": '"abc"'})
    told = recorder.checks[1:]
    if row.name in {"DeleteObjects", "CreateMultipartUpload"}:
        assert (reply.status, reply.code) == (501, "NotImplemented")
    elif row.if_match is not None:
        assert told == [(row.if_match, "repository/lake/ref/main/object/a")]
        assert (reply.status, reply.code) == (403, "AccessDenied")
        assert lake.graveler.calls == []


def test_a_row_without_an_action_admits_no_caller() -> None:
    class Held:
        operation = BY_NAME["GetObject"]

    with pytest.raises(TarnError, match="GetObject") as caught:
        require(Held(), Held.operation.source, "repository/lake")  # type: ignore[arg-type]
    assert caught.value.reason is Reason.ACCESS_DENIED


@pytest.mark.parametrize(
    "row", [row for row in OPERATIONS if row.about is not About.SERVICE], ids=named
)
async def test_a_missing_ref_is_told_as_the_row_says(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch, row: Operation
) -> None:
    async def perform(*_: object) -> Any:
        raise TarnError(Kind.NOT_FOUND, Reason.REF_NOT_FOUND, "no ref")

    # Rows are frozen, so this test replaces the function in the row itself.
    monkeypatch.setattr(type(row), "__setattr__", object.__setattr__)
    monkeypatch.setattr(row, "perform", perform)
    reply = await ask(lake, row)
    assert reply.line["code"] == row.missing_ref.value
    assert reply.line["operation"] == row.name
    writes = row.action is Action.WRITE_REPO
    assert (row.missing_ref is MissingRef.OF_WRITE) or not writes


# ---- the document


def test_the_document_has_the_table() -> None:
    assert describe() in DOCUMENT.read_text(), (
        "put the output of `python -m tarn_gateway.operations` between the marks in docs/user/s3.md"
    )


def test_remarks_are_about_operations_that_there_are() -> None:
    assert set(REMARKS) <= set(BY_NAME)


def test_every_name_of_an_operation_in_the_document_is_one() -> None:
    """The text names operations and actions, too."""
    verbs = "Abort|Complete|Copy|Create|Delete|Get|Head|List|Put|Upload"
    found = set(re.findall(rf"\b(?:{verbs})[A-Z]\w+", DOCUMENT.read_text()))
    known = {name for row in (*OPERATIONS, *NOT_OFFERED) for name in (row.name, *row.others)}
    assert found - known - set(Action) == set()
