"""The life of a request: bounds, callers, errors, records."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rest_service import Rest, basic, running_rest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.audit.record import Outcome
from tarn_api.errors import from_tarn_error
from tarn_api.requests import BODY_BYTES_MAX


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with running_rest(tmp_path, requests_max=4) as running:
        yield running


LAKE = "/repositories/lake"


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic",
        "Basic !!",
        "Basic " + base64.b64encode(b"\xff:x").decode(),
        "Basic " + base64.b64encode(b"nocolon").decode(),
        "Basic " + base64.b64encode(b":secret").decode(),
        "Digest x",
        "Bearer",
        "Bearer x",
        "Bearer " + "x" * 5000,
        basic("TARNX", "y" * 5000),
        basic("T" * 5000, "y"),
        basic("TARNX", "wrong"),
    ],
)
async def test_whoever_proves_nothing_is_unauthenticated(rest: Rest, authorization: str) -> None:
    answer = await rest.ask("GET", "/repositories", caller=authorization)
    assert (answer.status, answer.message) == (401, "error authenticating request")
    assert rest.audit.records[-1].outcome is Outcome.DENIED
    assert rest.audit.records[-1].principal == ""


async def test_a_wrong_secret_and_an_unknown_key_get_one_answer(rest: Rest) -> None:
    key, _ = rest.service.admin_key
    wrong = await rest.ask("GET", "/repositories", caller=basic(key, "wrong"))
    unknown = await rest.ask("GET", "/repositories", caller=basic("TARNUNKNOWN", "wrong"))
    assert (wrong.status, wrong.body) == (unknown.status, unknown.body)


async def test_a_key_pair_logs_in_once_and_its_deletion_ends_it(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rest.service
    await service.auth.create_user(service.admin, "eve", ["Developer"])
    made = await service.auth.create_credential(service.admin, user_id="eve")
    eve = basic(made.credential.access_key_id, made.secret_access_key)
    logins = 0
    log_in = service.auth.log_in

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal logins
        logins += 1
        return await log_in(*args, **kwargs)

    monkeypatch.setattr(service.auth, "log_in", counted)
    for _ in range(3):
        assert (await rest.ask("GET", LAKE, caller=eve)).status == 200
        service.clock.advance(60)
    assert logins == 1
    await service.auth.delete_credential(service.admin, made.credential.access_key_id)
    service.clock.advance(10)  # services/auth/README.md
    assert (await rest.ask("GET", LAKE, caller=eve)).status == 401
    assert logins == 1
    service.clock.advance(2)
    assert (await rest.ask("GET", LAKE, caller=eve)).status == 401
    assert logins == 2  # the pair was forgotten


async def test_the_rights_are_those_that_graveler_and_auth_decide(rest: Rest) -> None:
    service = rest.service
    await service.auth.create_user(service.admin, "ann", ["Analyst"])
    made = await service.auth.create_credential(service.admin, user_id="ann")
    ann = basic(made.credential.access_key_id, made.secret_access_key)
    assert (await rest.ask("GET", LAKE, caller=ann)).status == 200
    body = {"name": "dev", "source": "main"}
    refused = await rest.ask("POST", f"{LAKE}/branches", body, caller=ann)
    assert refused.status == 403
    record = rest.audit.records[-1]
    assert (record.operation, record.outcome, record.principal, record.resource) == (
        "api:createBranch",
        Outcome.DENIED,
        "ann",
        "repository/lake/branch/dev",
    )
    assert record.access_key_id == made.credential.access_key_id


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "part"),
    [
        ("GET", "/nowhere", None, 404, "path"),
        ("GET", "/repositories/lake/branches/main/", None, 200, ""),
        ("GET", "/repositories//branches", None, 404, "path"),
        ("PATCH", "/repositories", None, 405, "GET, POST"),
        ("GET", "/repositories/%ff", None, 400, "UTF-8"),
        ("GET", "/repositories?prefix=%ff", None, 400, "query"),
        ("GET", "/repositories?" + "a=1&" * 201, None, 400, "query"),
        ("GET", "/repositories?amount=1001", None, 400, "amount"),
        ("GET", "/repositories?amount=x", None, 400, "amount"),
        ("GET", f"{LAKE}/branches?show_hidden=maybe", None, 400, "show_hidden"),
        ("GET", f"{LAKE}/refs/main/objects/stat", None, 400, "path"),
        ("GET", f"{LAKE}/refs/main/commits?since=yesterday", None, 400, "since"),
        ("GET", f"{LAKE}/refs/a/diff/b?type=four_dot", None, 400, "type"),
        ("POST", f"{LAKE}/branches", b"{", 400, "JSON"),
        ("POST", f"{LAKE}/branches", b"[" * 100_000, 400, "array"),
        ("POST", f"{LAKE}/branches", b'{"name": "\xff", "source": "main"}', 400, ""),
        ("POST", f"{LAKE}/branches", None, 400, "missing"),
        ("POST", f"{LAKE}/branches", {"name": "x"}, 400, "source"),
        ("POST", f"{LAKE}/branches", {"name": ["x"], "source": "main"}, 400, "name"),
        ("POST", f"{LAKE}/branches", {"name": "..", "source": "main"}, 400, ""),
        (
            "POST",
            f"{LAKE}/branches/main/commits?source_metarange=x",
            {"message": "m"},
            501,
            "source_metarange",
        ),
    ],
)
async def test_malformed_requests_are_refused_by_what_is_wrong(
    rest: Rest, method: str, path: str, body: object, status: int, part: str
) -> None:
    answer = await rest.ask(method, path, body)
    assert answer.status == status, answer.body
    if status != 200:
        assert part in answer.message
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


async def test_paths_outside_of_the_interface_are_404(rest: Rest) -> None:
    for base in ("/nowhere", "/api/v2", "/api/v1x"):
        assert (await rest.ask("GET", "/repositories", base=base)).status == 404


async def test_names_may_be_encoded(rest: Rest) -> None:
    assert (await rest.ask("GET", f"{LAKE}/branches/m%61in")).json["id"] == "main"
    # A slash in a name is part of the name, and there is no such branch.
    assert (await rest.ask("GET", f"{LAKE}/branches/a%2Fb")).status in (400, 404)


async def test_bodies_are_bounded(rest: Rest) -> None:
    large = b" " * (BODY_BYTES_MAX + 1)
    announced = await rest.ask("POST", f"{LAKE}/branches", large)
    assert announced.status == 413
    chunked = await rest.ask(
        "POST",
        f"{LAKE}/branches",
        large,
        headers={"content-length": "", "transfer-encoding": "chunked"},
    )
    assert chunked.status == 413
    # A stranger gets less.
    login = await rest.ask("POST", "/auth/login", b" " * 20_000, caller=None)
    assert login.status == 413


async def test_too_many_requests_are_refused_before_work(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await rest.ask("GET", LAKE)).status == 200  # the caller is known
    release = asyncio.Event()
    get_branch = rest.service.graveler.get_branch

    async def held(*args: Any) -> Any:
        await release.wait()
        return await get_branch(*args)

    monkeypatch.setattr(rest.service.graveler, "get_branch", held)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(rest.ask("GET", f"{LAKE}/branches/main")) for _ in range(4)]
        await asyncio.sleep(0.01)
        refused = await rest.ask("GET", "/healthcheck", caller=None)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        release.set()
    assert [each.result().status for each in running] == [200] * 4
    assert (await rest.ask("GET", "/healthcheck", caller=None)).status == 204


async def test_strangers_that_wait_for_sign_in_leave_room_for_callers(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()
    log_in = rest.service.auth.log_in

    async def held(*args: Any, **kwargs: Any) -> Any:
        await release.wait()
        return await log_in(*args, **kwargs)

    assert (await rest.ask("GET", LAKE)).status == 200
    monkeypatch.setattr(rest.service.auth, "log_in", held)
    async with asyncio.TaskGroup() as group:
        strangers = [
            group.create_task(rest.ask("GET", LAKE, caller=basic(f"TARN{n}", "x")))
            for n in range(2)
        ]
        await asyncio.sleep(0.01)
        third = await rest.ask("GET", LAKE, caller=basic("TARN9", "x"))
        assert third.status == 503
        release.set()
    assert [each.result().status for each in strangers] == [401] * 2


@pytest.mark.parametrize("kind", Kind)
async def test_every_kind_of_error_has_its_answer(
    rest: Rest, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any, **__: Any) -> Any:
        raise TarnError(kind, Reason.INTERNAL, "deep inside")

    monkeypatch.setattr(rest.service.graveler, "create_branch", failing)
    monkeypatch.setattr(rest.service.graveler, "get_branch", failing)
    write = await rest.ask("POST", f"{LAKE}/branches", {"name": "x", "source": "main"})
    read = await rest.ask("GET", f"{LAKE}/branches/x")
    unknown = kind is Kind.UNKNOWN_OUTCOME
    assert 400 <= write.status < 600
    assert read.status == (503 if unknown else write.status)
    if unknown:
        # Never refused, never "nothing was done".
        assert write.status == 500
        assert "may have been done" in write.message
        assert rest.audit.records[-1].outcome is Outcome.UNKNOWN
    if kind in (Kind.CORRUPT, Kind.INTERNAL):
        assert "deep inside" not in write.message
    assert ("retry-after" in write.headers) == (write.status == 503)


def test_no_reason_turns_an_unknown_outcome_into_a_refusal() -> None:
    for reason in Reason:
        assert (
            from_tarn_error(TarnError(Kind.UNKNOWN_OUTCOME, reason, "x"), write=True).status == 500
        )


async def test_a_defect_is_500_and_tells_nothing(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any, **__: Any) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr(rest.service.graveler, "get_branch", failing)
    answer = await rest.ask("GET", f"{LAKE}/branches/x")
    assert answer.status == 500
    assert "secret" not in answer.message


async def test_changes_are_audited_and_reads_are_not(rest: Rest) -> None:
    await rest.ask("GET", LAKE)
    assert rest.audit.records == []
    await rest.ask("DELETE", f"{LAKE}/branches/main/objects?path=a%2Fb")
    record = rest.audit.records[-1]
    assert (record.operation, record.resource, record.outcome, record.principal) == (
        "api:deleteObject",
        "repository/lake/branch/main/object/a/b",
        Outcome.OK,
        "root",
    )


async def test_graveler_of_an_earlier_release_is_not_asked_for_ever(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins a listing at its start, whatever `after` says; the client would ask for the same page again."""
    listed = rest.service.graveler.list_branches

    async def old(*args: Any, after: str = "", **kwargs: Any) -> Any:
        return await listed(*args, **kwargs)

    monkeypatch.setattr(rest.service.graveler, "list_branches", old)
    assert (await rest.ask("GET", f"{LAKE}/branches?after=zzz")).status == 503
