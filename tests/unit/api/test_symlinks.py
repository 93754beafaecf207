"""Symlink manifests: which objects they name, what becomes of former ones, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from local_blocks import local_store
from rest_service import Answer, Rest, basic, running_rest
from s3_stores import opened
from tests.support.servers.s3_server import S3Server

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey, BlockStore, BlockWriter
from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.audit.record import Outcome
from tarn_api.symlinks import SymlinkLimits

OBJECTS = "/repositories/lake/branches/main/objects"
ROOT = "_tarn/symlinks/lake/main/"


@pytest.fixture(params=["mem", "local", "s3"])
async def rest(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rest]:
    """The endpoint over each kind of block store."""
    async with AsyncExitStack() as stack:
        if request.param == "mem":
            yield await stack.enter_async_context(running_rest(tmp_path))
            return
        prefix = "local://"
        if request.param == "s3":
            server = stack.enter_context(S3Server(tmp_path / "s3"))
            prefix = f"s3://tarn/{tmp_path.name}/"
            store: BlockStore = await stack.enter_async_context(opened(server, prefix[:-1]))
        else:
            store = await stack.enter_async_context(local_store(tmp_path / "blocks"))
        yield await stack.enter_async_context(
            running_rest(
                tmp_path, store=lambda _: cast("MemBlockStore", store), namespace_prefix=prefix
            )
        )


@pytest.fixture
async def in_memory(tmp_path: Path) -> AsyncIterator[Rest]:
    async with running_rest(tmp_path) as running:
        yield running


async def put(rest: Rest, *paths: str) -> None:
    for path in paths:
        answer = await rest.ask("POST", f"{OBJECTS}?path={quote(path)}", path.encode())
        assert answer.status == 201, answer.body


async def commit(rest: Rest, *paths: str, deleted: tuple[str, ...] = ()) -> str:
    await put(rest, *paths)
    if deleted:
        answer = await rest.ask("POST", f"{OBJECTS}/delete", {"paths": list(deleted)})
        assert answer.json["errors"] == []
    made = await rest.ask("POST", "/repositories/lake/branches/main/commits", {"message": "m"})
    assert made.status == 201, made.body
    commit_id: str = made.json["id"]
    return commit_id


async def write(
    rest: Rest, location: str | None = None, ref: str = "main", caller: str = ""
) -> Answer:
    query = "" if location is None else f"?location={quote(location)}"
    return await rest.ask(
        "POST", f"/repositories/lake/refs/{quote(ref)}/symlink{query}", caller=caller
    )


async def namespace_of(rest: Rest) -> str:
    return (
        await rest.service.graveler.get_repository(rest.service.admin, "lake")
    ).storage_namespace


def blocks_of(rest: Rest) -> BlockStore:
    return rest.endpoint._backend.objects.blocks


async def files_of(rest: Rest) -> list[str]:
    """All files that have to do with manifests."""
    found = await blocks_of(rest).list_page(await namespace_of(rest), "_tarn/symlink", "", 1000)
    return [each.path for each in found]


async def told(rest: Rest) -> dict[str, list[str]]:
    """Directory → what an engine reads there: the bytes at each address of its manifest. Here an object holds its own
    path."""
    namespace, blocks = await namespace_of(rest), blocks_of(rest)
    found: dict[str, list[str]] = {}
    for path in await files_of(rest):
        assert path.startswith(ROOT)
        assert path.endswith("symlink.txt")
        text = (await blocks.read(BlockKey(namespace, path))).decode()
        bodies = []
        for line in text.splitlines():
            assert line.startswith(namespace + "/data/")
            key = BlockKey(namespace, line.removeprefix(namespace + "/"))
            bodies.append((await blocks.read(key)).decode())
        found[path.removeprefix(ROOT).removesuffix("symlink.txt")] = bodies
    return found


async def test_each_directory_has_a_manifest_of_its_committed_objects(rest: Rest) -> None:
    """In byte order, the objects of `t/` are before and behind those of `t/b/`."""
    await commit(rest, "top", "t/a", "t/b/1", "t/b/2", "t/c", "t/day=1/é x", "empty/deep/er/1")
    await put(rest, "t/staged", "staged/1")
    answer = await write(rest)
    assert answer.status == 201, answer.body
    assert answer.json == {"location": f"{await namespace_of(rest)}/_tarn/symlinks"}
    assert await told(rest) == {
        "": ["top"],
        "empty/deep/er/": ["empty/deep/er/1"],
        "t/": ["t/a", "t/c"],
        "t/b/": ["t/b/1", "t/b/2"],
        "t/day=1/": ["t/day=1/é x"],
    }


async def test_another_run_replaces_manifests_and_removes_those_of_directories_that_are_gone(
    rest: Rest,
) -> None:
    await commit(rest, "t/a", "t/gone/1", "t/emptied/1", "u/gone/1")
    assert (await write(rest)).status == 201
    gone = ("t/gone/1", "t/emptied/1", "u/gone/1", "t/a")
    await commit(rest, "t/b", "t/new/1", "t/emptied/_hidden", deleted=gone)
    for _ in range(2):
        assert (await write(rest, "t")).status == 201
        # What was not asked for stays, though its block is one that a collection may delete.
        assert await told(rest) == {
            "t/": ["t/b"],
            "t/new/": ["t/new/1"],
            "u/gone/": ["u/gone/1"],
        }
    assert (await write(rest)).status == 201
    assert await told(rest) == {"t/": ["t/b"], "t/new/": ["t/new/1"]}


async def test_a_location_is_a_directory_and_no_prefix(in_memory: Rest) -> None:
    rest = in_memory
    await commit(rest, "t/orders/1", "t/orders2/1", "t/ord")
    for location in ("t/ord", "t/orders/1", "nothing"):
        assert (await write(rest, location)).status == 201
        assert await files_of(rest) == []
    for location in ("t/orders", "t/orders/"):
        assert (await write(rest, location)).status == 201
        assert await told(rest) == {"t/orders/": ["t/orders/1"]}


async def test_what_engines_pass_over_is_in_no_manifest(in_memory: Rest) -> None:
    """Also a directory that is hidden itself, unless it is what was asked for."""
    rest = in_memory
    hidden = (
        "t/../x",
        "t/_SUCCESS",
        "t/.part.crc",
        "t/_temporary/0/1",
        "t/x/.git/a/b",
        "t/_delta_log/0.json",
    )
    await commit(rest, "t/1", "t/_day=1/1", "t/marker/", *hidden)
    assert (await write(rest)).status == 201
    assert await told(rest) == {"t/": ["t/1"], "t/_day=1/": ["t/_day=1/1"]}
    assert (await write(rest, "t/_delta_log")).status == 201
    assert (await told(rest))["t/_delta_log/"] == ["t/_delta_log/0.json"]


async def test_tags_and_commits_have_manifests_of_their_own(in_memory: Rest) -> None:
    rest = in_memory
    first = await commit(rest, "a")
    await rest.ask("POST", "/repositories/lake/tags", {"id": "v1", "ref": "main"})
    await commit(rest, "b")
    for ref in ("v1", first, "main"):
        assert (await write(rest, ref=ref)).status == 201
    sizes = {}
    for path in await files_of(rest):
        body = await blocks_of(rest).read(BlockKey(await namespace_of(rest), path))
        sizes[path.split("/")[3]] = body.count(b"\n")
    assert sizes == {"v1": 1, first: 1, "main": 2}


@pytest.mark.parametrize(
    ("ref", "status"), [("main~1", 400), ("main@", 400), ("..", 400), ("nothing", 404)]
)
async def test_other_names_are_refused(in_memory: Rest, ref: str, status: int) -> None:
    answer = await write(in_memory, ref=ref)
    assert answer.status == status, answer.body
    assert await files_of(in_memory) == []


@pytest.mark.parametrize("path", ["a//b", "/b", "symlink.txt/b", "x" * 256 + "/b", "a/" * 33 + "b"])
async def test_a_directory_that_can_have_no_manifest_is_named_and_nothing_changes(
    in_memory: Rest, path: str
) -> None:
    rest = in_memory
    await commit(rest, "a/1", "gone/1")
    assert (await write(rest)).status == 201
    before = await told(rest)
    await commit(rest, "a/2", path, deleted=("gone/1",))
    answer = await write(rest)
    assert answer.status == 400
    assert repr(path[: path.rfind("/") + 1]) in answer.message
    assert await told(rest) == before


def limit(rest: Rest, **changes: Any) -> None:
    backend = rest.endpoint._backend
    object.__setattr__(backend, "symlink_limits", replace(SymlinkLimits(), **changes))


@pytest.mark.parametrize("limits", [{"objects_max": 3}, {"directories_max": 2}])
async def test_nothing_changes_if_there_is_too_much(
    in_memory: Rest, limits: dict[str, int]
) -> None:
    rest = in_memory
    await commit(rest, "a/1", "b/1")
    limit(rest, **limits)
    assert (await write(rest)).status == 201
    before = await told(rest)
    await commit(rest, "b/2", "c/2", deleted=("a/1",))
    assert (await write(rest)).status == 201
    assert await told(rest) != before
    before = await told(rest)
    await commit(rest, "d/1", "e/1", deleted=("b/1",))
    answer = await write(rest)
    assert answer.status == 400
    assert "location" in answer.message
    assert await told(rest) == before
    assert (await write(rest, "d")).status == 201


async def test_runs_of_one_ref_exclude_each_other_until_one_is_forgotten(in_memory: Rest) -> None:
    rest = in_memory
    await commit(rest, "a/1")
    namespace = await namespace_of(rest)
    other = BlockKey(namespace, "_tarn/symlink-runs/lake/main/ab12")
    await blocks_of(rest).put(other, b"")
    answer = await write(rest)
    assert answer.status == 409
    assert "another request" in answer.message
    assert await files_of(rest) == [other.path]
    assert (await rest.ask("POST", "/repositories/lake/tags", {"id": "v1", "ref": "main"})).status
    assert (await write(rest, ref="v1")).status == 201
    rest.service.clock.advance(SymlinkLimits().seconds * 2 + 1)
    assert (await write(rest)).status == 201
    assert other.path not in await files_of(rest)


class FaultyWrites:
    """A store that fails to replace some manifests, or never ends."""

    def __init__(self, blocks: BlockStore, broken: str, *, hangs: bool) -> None:
        self._blocks = blocks
        self._broken = broken
        self._hangs = hangs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    async def open_replace(self, key: BlockKey) -> BlockWriter:
        if self._broken in key.path:
            if self._hangs:
                await asyncio.Event().wait()
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket is away")
        return await self._blocks.open_replace(key)


@pytest.mark.parametrize(
    ("hangs", "status", "word"), [(True, 500, "not complete"), (False, 503, "away")]
)
async def test_a_run_that_fails_removes_nothing_and_can_be_repeated(
    in_memory: Rest, *, hangs: bool, status: int, word: str
) -> None:
    rest = in_memory
    await commit(rest, "a/1", "b/1", "c/1")
    assert (await write(rest)).status == 201
    await commit(rest, "a/2", "b/2", deleted=("c/1",))
    objects = rest.endpoint._backend.objects
    sound = objects.blocks
    object.__setattr__(objects, "blocks", FaultyWrites(sound, "/b/", hangs=hangs))
    limit(rest, seconds=0.2, at_once=1)
    answer = await write(rest)
    assert (answer.status, word in answer.message) == (status, True), answer.body
    object.__setattr__(objects, "blocks", sound)
    # Each manifest is whole, and those of directories that are gone are still there.
    assert await told(rest) == {"a/": ["a/1", "a/2"], "b/": ["b/1"], "c/": ["c/1"]}
    limit(rest)
    assert (await write(rest)).status == 201
    assert await told(rest) == {"a/": ["a/1", "a/2"], "b/": ["b/1", "b/2"]}


async def test_a_process_writes_two_at_a_time(in_memory: Rest) -> None:
    rest = in_memory
    gate = rest.endpoint._backend.writing_symlinks
    async with gate, gate:
        assert (await write(rest)).status == 503
    assert (await write(rest)).status == 201


async def test_whoever_may_not_write_the_branch_writes_no_file_and_is_audited(
    in_memory: Rest,
) -> None:
    rest = in_memory
    await commit(rest, "a/1")
    service = rest.service
    await service.auth.create_user(service.admin, "reader", ["Analyst"])
    made = await service.auth.create_credential(service.admin, user_id="reader")
    reader = basic(made.credential.access_key_id, made.secret_access_key)
    assert (await write(rest, caller=reader)).status == 403
    assert await files_of(rest) == []
    last = rest.audit.records[-1]
    assert (last.operation, last.outcome) == ("api:createSymlinkFile", Outcome.DENIED)
    assert (await write(rest)).status == 201
    last = rest.audit.records[-1]
    assert (last.operation, last.outcome) == ("api:createSymlinkFile", Outcome.OK)
    assert last.resource == "repository/lake/branch/main"
