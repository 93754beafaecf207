"""Changes whose answers are lost: the client learns that they may have been made, and to repeat one makes no second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from rest_service import Answer, Rest, running_rest

from tarn.rpc.wire.errors import unknown_outcome_error
from tarn.telemetry.audit.record import Outcome

LAKE = "/repositories/lake"
BRANCHES = f"{LAKE}/branches"
ON_MAIN = f"{BRANCHES}/main"
ABSENT = {"if-none-match": "*"}

Ask = tuple[str, str, object, dict[str, str] | None]


@pytest.fixture
async def rest(tmp_path: Path) -> AsyncIterator[Rest]:
    async with running_rest(tmp_path) as running:
        yield running


async def done(rest: Rest, method: str, path: str, body: object = None) -> Any:
    answer = await rest.ask(method, path, body)
    assert answer.status in (200, 201, 204), answer
    return answer.json if answer.headers.get("content-type") == "application/json" else None


async def changed(rest: Rest, branch: str, path: str) -> str:
    """Makes a commit that adds an object; returns its id."""
    await done(rest, "POST", f"{BRANCHES}/{branch}/objects?path={path}", b"x")
    made = await done(rest, "POST", f"{BRANCHES}/{branch}/commits", {"message": path})
    return str(made["id"])


async def prepared(rest: Rest) -> dict[str, str]:
    """Makes a branch `feature` with a commit, and an uncommitted object of main; returns the commits."""
    first = await changed(rest, "main", "first")
    await done(rest, "POST", BRANCHES, {"name": "feature", "source": "main"})
    return {"first": first, "picked": await changed(rest, "feature", "second")}


async def state(rest: Rest) -> Any:
    """Returns all that the changes of this module change."""
    refs = [await done(rest, "GET", f"{LAKE}/{each}") for each in ("branches", "tags")]
    log = await done(rest, "GET", f"{LAKE}/refs/main/commits")
    objects = await done(rest, "GET", f"{LAKE}/refs/main/objects/ls")
    found = [(each["path"], each["checksum"]) for each in objects["results"]]
    uncommitted = await done(rest, "GET", f"{ON_MAIN}/diff")
    repositories = await done(rest, "GET", "/repositories")
    return refs, log, found, uncommitted, repositories


def lose_answers(rest: Rest, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Has graveler make the changes of one call, and their answers be lost."""
    make = getattr(rest.service.graveler, name)

    async def lost(*args: object, **kwargs: object) -> object:
        await make(*args, **kwargs)
        raise unknown_outcome_error("the connection broke")

    monkeypatch.setattr(rest.service.graveler, name, lost)


CHANGES: dict[str, tuple[str, Callable[[dict[str, str]], Ask], int, str]] = {
    "upload": ("stage", lambda _: ("POST", f"{ON_MAIN}/objects?path=new", b"n", None), 201, ""),
    "upload that must be the first": (
        "stage",
        lambda _: ("POST", f"{ON_MAIN}/objects?path=new", b"n", ABSENT),
        412,
        "",
    ),
    "delete of an object": (
        "unstage",
        lambda _: ("DELETE", f"{ON_MAIN}/objects?path=first", None, None),
        204,
        "",
    ),
    "commit": (
        "create_commit",
        lambda _: ("POST", f"{ON_MAIN}/commits", {"message": "again"}, None),
        400,
        "no changes",
    ),
    "merge": (
        "merge",
        lambda _: ("POST", f"{LAKE}/refs/feature/merge/main", {}, None),
        400,
        "no changes",
    ),
    "revert": (
        "revert",
        lambda at: ("POST", f"{ON_MAIN}/revert", {"ref": at["first"], "parent_number": 0}, None),
        400,
        "no changes",
    ),
    "cherry-pick": (
        "cherry_pick",
        lambda at: ("POST", f"{ON_MAIN}/cherry-pick", {"ref": at["picked"]}, None),
        400,
        "no changes",
    ),
    "branch": (
        "create_branch",
        lambda _: ("POST", BRANCHES, {"name": "new", "source": "main"}, None),
        409,
        "",
    ),
    "tag": (
        "create_tag",
        lambda _: ("POST", f"{LAKE}/tags", {"id": "t", "ref": "main"}, None),
        409,
        "",
    ),
    "delete of a branch": (
        "delete_branch",
        lambda _: ("DELETE", f"{BRANCHES}/feature", None, None),
        404,
        "",
    ),
    "repository": (
        "create_repository",
        lambda _: (
            "POST",
            "/repositories",
            {"name": "pond", "storage_namespace": "local://p"},
            None,
        ),
        409,
        "not unique",
    ),
}
"""The call of graveler whose answer is lost, the request, and the answer to its repetition."""


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_whose_answer_was_lost_is_made_once(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A program that repeats what ended with 500 finds it made: docs/design/rest-api.md, "Answers that are lost"."""
    call, request_of, status, text = CHANGES[name]
    at = await prepared(rest)
    if name == "commit":
        await done(rest, "POST", f"{ON_MAIN}/objects?path=new", b"n")
    method, path, body, headers = request_of(at)

    async def ask() -> Answer:
        return await rest.ask(method, path, body, headers=headers)

    before = await state(rest)
    with monkeypatch.context() as patched:
        lose_answers(rest, patched, call)
        lost = await ask()
    assert (lost.status, "may have been done" in lost.message) == (500, True)
    assert rest.audit.records[-1].outcome is Outcome.UNKNOWN
    made = await state(rest)
    assert made != before
    again = await ask()
    assert again.status == status
    assert not text or text in again.message
    assert await state(rest) == made
