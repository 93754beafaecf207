"""User metadata that are changed in place, over the real graveler."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from graveler_service import Service, reason_of, running_service
from tests.support.clock import SeededIds

from tarn.block.port import BlockKey
from tarn.core.collection import LIMITS
from tarn.core.entry import Entry, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.objects import copying, rewriting
from tarn.objects.backend import ObjectBackend
from tarn.objects.headers import StoredHeaders
from tarn.objects.incoming import StreamedBody
from tarn.objects.repository_cache import RepositoryCache
from tarn.objects.rewriting import ObjectTooLargeError, ReplacedAgainError, set_metadata
from tarn.objects.writing import store_object
from tarn.rpc.wire.call import Call

MAIN = BranchId("main")
BODY = b"id,amount\n"
FIRST = StoredHeaders("text/csv", (("job", "1"), ("team", "ada")), cache_control="no-store")


@dataclass(frozen=True)
class Caller:
    """A request of a user."""

    caller_token: str
    request_id: str = "test"
    began: float = 1e9
    view: str = ""


@dataclass
class Front:
    """What a front is made of, and its user."""

    service: Service
    backend: ObjectBackend
    caller: Caller

    async def put(self, body: bytes = BODY, headers: StoredHeaders = FIRST) -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield body

        await store_object(
            self.backend,
            self.caller,
            await self.backend.repository(self.caller, "lake"),
            MAIN,
            "a",
            StreamedBody(pieces(), bytes_max=1 << 20, size=len(body)),
            headers,
            tags=(("team", "ada"),),
        )

    async def set(self, path: str = "a", **metadata: str) -> Entry:
        return await set_metadata(self.backend, self.caller, "lake", MAIN, path, metadata)

    async def entry(self, ref: str = "main") -> Entry:
        found = await self.backend.graveler.lookup(self.service.admin, "lake", ref, "a")
        return unpack(found.entry)

    async def body(self) -> bytes:
        entry = await self.entry()
        repository = await self.backend.repositories.get(self.service.admin, "lake")
        key = BlockKey(repository.namespace, physical_path(entry.address))
        return await self.backend.blocks.read(key)

    async def block_count(self) -> int:
        repository = await self.backend.repositories.get(self.service.admin, "lake")
        found = await self.backend.blocks.list_page(repository.namespace, "data/", "", 100)
        return len(found)


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with running_service(tmp_path) as service:

        async def own_token(_: Call) -> str:
            return await service.gateway_token()

        backend = ObjectBackend(
            graveler=service.graveler,
            blocks=service.replicas.blocks,
            repositories=RepositoryCache(service.graveler, service.clock),
            clock=service.clock,
            ids=SeededIds(service.clock, seed=5),
            own_token=own_token,
        )
        yield Front(service, backend, Caller(service.admin.caller_token))
        await backend.removals.close()


def without_operation(entry: Entry) -> Entry:
    return replace(entry, operation_id="", judged_move_us=0, replaced_address=b"")


async def test_all_user_metadata_are_replaced_and_the_rest_of_the_object_stays(
    front: Front,
) -> None:
    await front.put()
    before = await front.entry()
    front.service.clock.advance(60)
    await front.set(Owner="sales")
    after = await front.entry()
    assert after.metadata == (("owner", "sales"),)
    assert without_operation(replace(after, metadata=before.metadata)) == without_operation(before)
    assert await front.block_count() == 1, "a young block is shared"
    await front.set()
    assert (await front.entry()).metadata == ()
    made = await front.backend.graveler.create_commit(front.service.admin, "lake", "main", "m")
    await front.set(owner="ops")
    assert (await front.entry(made.commit.commit_id)).metadata == ()
    assert (await front.entry()).metadata == (("owner", "ops"),)


async def test_metadata_that_the_object_has_already_are_not_written_again(front: Front) -> None:
    """So a repetition after a lost answer changes nothing, not even after others have committed."""
    await front.put()
    await front.set(owner="sales")
    before = await front.entry()
    assert await front.set(OWNER="sales") == before
    assert await front.entry() == before


async def test_an_old_block_is_copied(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection may judge the old block before the entry is staged (rule 11). Here a minute stands for hours."""
    monkeypatch.setattr(copying, "YOUNG", replace(LIMITS, staging_us=60_000_000))
    await front.put()
    before = await front.entry()
    front.service.clock.advance(61)
    await front.set(owner="sales")
    after = await front.entry()
    assert after.address != before.address
    assert (after.etag, after.mtime_us, after.tags) == (before.etag, before.mtime_us, before.tags)
    assert await front.body() == BODY
    front.service.clock.advance(61)
    monkeypatch.setattr(rewriting, "COPY_BYTES_MAX", len(BODY) - 1)
    with pytest.raises(ObjectTooLargeError):
        await front.set(owner="ops")
    assert await front.entry() == after


@pytest.mark.parametrize("body", [BODY, b"newer\n"])
@pytest.mark.parametrize("is_old", [False, True])
async def test_a_put_between_the_read_and_the_write_is_not_lost(
    front: Front, monkeypatch: pytest.MonkeyPatch, is_old: bool, body: bytes
) -> None:
    """Also one of the same bytes, and so the same ETag, with other headers."""
    if is_old:
        monkeypatch.setattr(copying, "YOUNG", replace(LIMITS, staging_us=-1))
    await front.put()
    lookup, left = front.backend.graveler.lookup, 1

    async def slow(*arguments: object, **named: object) -> object:
        nonlocal left
        found = await lookup(*arguments, **named)  # type: ignore[arg-type]
        if named and left:
            left -= 1
            await front.put(body, StoredHeaders("text/plain", (("job", f"{left}"),)))
        return found

    monkeypatch.setattr(front.backend.graveler, "lookup", slow)
    await front.set(owner="sales")
    made = await front.entry()
    assert (made.content_type, made.metadata) == ("text/plain", (("owner", "sales"),))
    assert await front.body() == body
    left = 50
    with pytest.raises(ReplacedAgainError) as raised:
        await front.set(owner="ops")
    assert raised.value.kind is Kind.UNAVAILABLE, "nothing was written"
    assert (await front.entry()).metadata == (("job", f"{left}"),)
    assert left > 40


async def test_an_object_that_is_deleted_meanwhile_does_not_come_back(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    await front.put()
    lookup = front.backend.graveler.lookup

    async def slow(*arguments: object, **named: object) -> object:
        found = await lookup(*arguments, **named)  # type: ignore[arg-type]
        await front.backend.graveler.unstage(front.service.admin, "lake", "main", "a")
        return found

    monkeypatch.setattr(front.backend.graveler, "lookup", slow)
    assert await reason_of(front.set(owner="sales")) is Reason.ENTRY_NOT_FOUND
    monkeypatch.undo()
    assert await reason_of(front.entry()) is Reason.ENTRY_NOT_FOUND


async def test_metadata_are_bounded_and_need_an_object_of_a_branch(front: Front) -> None:
    await front.put()
    before = await front.entry()
    graveler, admin = front.backend.graveler, front.service.admin
    await graveler.create_commit(admin, "lake", "main", "m")
    await graveler.create_tag(admin, "lake", "v1", "main")
    for metadata, reason in (
        ({"a": "x" * 2048}, Reason.METADATA_TOO_LARGE),
        ({"a b": "1"}, Reason.INVALID_ARGUMENT),
        ({"a": "1", "A": "2"}, Reason.INVALID_ARGUMENT),
    ):
        assert await reason_of(front.set(**metadata)) is reason
    assert await reason_of(front.set("absent", owner="x")) is Reason.ENTRY_NOT_FOUND
    for branch, reason in (("v1", Reason.REF_NOT_WRITABLE), ("no", Reason.BRANCH_NOT_FOUND)):
        work = set_metadata(front.backend, front.caller, "lake", BranchId(branch), "a", {})
        assert await reason_of(work) is reason
    assert await front.entry() == before


async def test_rules_and_permissions_of_the_branch_hold(front: Front) -> None:
    await front.put()
    before = await front.entry()
    reader = await front.service.as_user("ann", "Analyst")
    work = set_metadata(
        front.backend, Caller(reader.caller_token), "lake", MAIN, "a", {"owner": "x"}
    )
    assert await reason_of(work) is Reason.ACCESS_DENIED
    await front.backend.graveler.set_read_only(front.service.admin, "lake", True)
    front.service.clock.advance(6)
    with pytest.raises(TarnError) as raised:
        await front.set(owner="x")
    assert raised.value.reason is Reason.REPOSITORY_READ_ONLY
    assert await front.entry() == before
