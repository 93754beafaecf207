"""Events of records in the life of an installation: each record is what its newest event says."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from graveler_service import Service, running_service
from tests.sim.told import untold
from tests.support.record_events import RecordEvent, record_events

from tarn.client.collections import CollectionClient
from tarn.core.expiry import Expiry
from tarn.core.ids import BranchId, CommitId
from tarn.core.quota import Limits, QuotaKind
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import AuthKeys, InstallationKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import Kv, Partition
from tarn.kv.record_kinds import KINDS, Place, place_of
from tarn.kv.registrations import Registrations, hour_of
from tarn_graveler.records.branches import BranchName
from tarn_proto.auth.v1.session_key_service_pb2 import CreateSessionKeyRequest
from tarn_proto.store.v1 import auth_pb2
from tarn_proto.store.v1 import journal_pb2 as pb

KEYS = InstallationKeys("test")


class Journaled:
    """A service whose records leave events."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.tarn, self.admin = service.graveler, service.admin
        self.kv = service.replicas.kv
        self.registrations = Registrations(self.kv, KEYS, service.clock)

    async def told(self) -> list[RecordEvent]:
        """All events, in the order of their requests."""
        hour = hour_of(self.service.clock.now_us())
        now_us = self.service.clock.now_us()
        found = record_events(self.kv, self.registrations, range(hour - 200, hour + 1), now_us)
        return [each async for each in found]

    async def operations(self, key: str) -> list[str]:
        """What changed a record, from the first change on."""
        found = sorted(await self.told(), key=lambda each: each.order)
        names = pb.JournalOperation.Name
        return [names(each.event.operation)[18:] for each in found if each.event.key == key]

    async def partitions(self) -> list[tuple[Place, Partition]]:
        repository = await self.service.replica.repositories.get("lake")
        keys = self.service.replica.repositories.keys_of(repository)
        shared = [KEYS.graveler, AuthKeys("test").partition]
        parts = [*shared, keys.refs, keys.commits, keys.pulls, keys.reflog]
        return [(place, each) for each in parts if (place := place_of("test", each.name))]

    async def check(self) -> Counter[Place]:
        """Compares all records with their events; returns how many rows each place has."""
        registered = {each.registration.event_key for each in await self.told()}
        counts: Counter[Place] = Counter()
        for place, partition in await self.partitions():
            rows = dict(await self.kv.scan(partition, b"", None, 1_000))
            companions = await self.kv.scan_companions(partition, b"", None, 1_000)
            assert untold(place, rows, companions) == []
            assert {each.key for each in companions} <= registered
            counts[place] = len(rows)
        return counts


@pytest.fixture(params=["memory", "embedded"])
async def journaled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journaled]:
    kv: Kv = MemKv()
    if request.param == "embedded":
        kv = await open_embedded(tmp_path / "tarn.db", durability="os")
    async with running_service(tmp_path, kv, keeps_events=True) as service:
        yield Journaled(service)
    await kv.close()


async def _live(journaled: Journaled) -> None:
    """Changes records of all kinds."""
    service, tarn, admin = journaled.service, journaled.tarn, journaled.admin
    await service.put("a", 1)
    first = (await tarn.create_commit(admin, "lake", "main", "one")).commit.commit_id
    await tarn.create_branch(admin, "lake", "dev", "main", time_to_live_s=86_400)
    await tarn.set_branch_expiry(admin, "lake", "dev", None)
    await service.put("b", 2, "dev")
    await tarn.create_commit(admin, "lake", "dev", "two")
    pull = await tarn.create_pull_request(admin, "lake", "dev", "main", "take b")
    await tarn.comment_pull_request(admin, "lake", pull.pull_request_id, "fine")
    await tarn.merge_pull_request(admin, "lake", pull.pull_request_id)
    await service.put("c", 3)
    await tarn.compact_branch(admin, "lake", "main", force=True)
    await tarn.reset_branch(admin, "lake", "main")
    await tarn.revert(admin, "lake", "main", "main", parent_number=1)
    await tarn.cherry_pick(admin, "lake", "main", "dev")
    await tarn.create_tag(admin, "lake", "v1", "main")
    await tarn.create_tag(admin, "lake", "v2", "main")
    await tarn.delete_tag(admin, "lake", "v2")
    await tarn.create_branch(admin, "lake", "old", "main")
    await tarn.delete_branch(admin, "lake", "old")
    settings = await tarn.get_settings(admin, "lake")
    etag = await tarn.set_metadata(admin, "lake", {"team": "x"}, if_match=settings.etag)
    await tarn.set_read_only(admin, "lake", True, if_match=etag)
    await tarn.set_read_only(admin, "lake", False)
    await tarn.set_default_branch(admin, "lake", "dev")
    await tarn.set_quota(admin, QuotaKind.REPOSITORY, "lake", Limits(branches=9))
    await tarn.create_bucket_view(admin, "view", "lake")
    await tarn.begin_compaction_pause(admin, 60)
    repository = await service.replica.repositories.get("lake")
    await service.replica.expired.expire(repository, [(CommitId(first), Expiry("rule", 5))])
    await service.replica.erased.erase(repository, [b"\1" * 16], "plan")
    await CollectionClient(service.transport).hold(admin, "lake", 60)


async def test_each_record_is_what_its_newest_event_says(journaled: Journaled) -> None:
    await _live(journaled)
    counts = await journaled.check()
    assert min(counts.values()) > 1
    assert set(counts) == set(Place)


async def test_every_kind_of_record_has_an_event(journaled: Journaled) -> None:
    """So the life above leaves out none."""
    await _live(journaled)
    seen = {each.event.key.encode() for each in await journaled.told()}
    kinds = [kind for kind in KINDS if kind.is_journaled]
    untouched = [kind.layouts for kind in kinds if not any(map(kind.covers, seen))]
    assert untouched == [("RepositoryKeys.CLOSED",)], "it begins with the deletion of a repository"
    await journaled.tarn.delete_repository(journaled.admin, "lake")
    assert (await journaled.operations("repos/lake"))[-1] == "REMOVE"
    assert "SET" in await journaled.operations("closed")


async def test_the_events_of_a_branch_say_what_changed_it(journaled: Journaled) -> None:
    await _live(journaled)
    main = await journaled.operations("branches/main")
    assert main[:2] == ["CREATE", "CREATE"], "pending, then live"
    assert {"SEAL", "COMMIT", "MERGE", "COMPACT", "RESET", "REVERT", "CHERRY_PICK"} <= set(main)
    assert (await journaled.operations("branches/old"))[-1] == "REMOVE_BRANCH"
    assert await journaled.operations("tags/v2") == ["SET", "SET", "REMOVE"]
    (expired,) = [each for each in await journaled.told() if each.event.key.startswith("expired/")]
    assert expired.event.operation == pb.JOURNAL_OPERATION_EXPIRE
    (erased,) = [each for each in await journaled.told() if each.event.key.startswith("erased/")]
    assert erased.event.operation == pb.JOURNAL_OPERATION_ERASE


async def test_every_token_is_registered_before_a_record_names_it(journaled: Journaled) -> None:
    await _live(journaled)
    tokens = {
        each.registration.token.token_id
        for each in await journaled.told()
        if each.registration.token is not None
    }
    repository = await journaled.service.replica.repositories.get("lake")
    branches = journaled.service.replica.branches
    for branch_id in ("main", "dev"):
        branch = (await branches.fresh(BranchName(repository, BranchId(branch_id)))).branch
        assert {token.token_id for token in branch.tokens} <= tokens


async def test_an_event_names_the_user_who_asked(journaled: Journaled) -> None:
    service, admin = journaled.service, journaled.admin
    ann = await service.as_user("ann", "Admin")
    await journaled.tarn.create_tag(ann, "lake", "hers", "main")
    await journaled.tarn.create_tag(admin, "lake", "his", "main")
    by_key = {each.event.key: each.event.user_uid for each in await journaled.told()}
    users = {
        user.user_id: user.user_uid
        for user in [await service.auth.get_user(admin, name) for name in ("ann", "root")]
    }
    assert by_key["tags/hers"] == users["ann"]
    assert by_key["tags/his"] == users["root"]
    assert by_key["users/ann"] == users["root"]


async def test_users_and_keys_have_events_without_secrets(journaled: Journaled) -> None:
    service, admin = journaled.service, journaled.admin
    await service.auth.create_user(admin, "ann", ["Analyst"])
    await service.auth.update_user_roles(admin, "ann", ["Developer"])
    made = await service.auth.create_credential(admin, user_id="ann")
    await service.auth.create_session_key(admin, CreateSessionKeyRequest(duration_s=3600))
    key = f"credentials/{made.credential.access_key_id}"
    stored = (await service.replicas.kv.get_many(AuthKeys("test").partition, [key.encode()]))[0]
    assert stored is not None
    sealed = auth_pb2.CredentialRecord.FromString(stored.value).sealed_secret
    assert sealed
    told = await journaled.told()
    (event,) = [each.event for each in told if each.event.key == key]
    assert auth_pb2.CredentialRecord.FromString(event.payload).user_id == "ann"
    for each in told:
        assert sealed not in each.event.payload
        assert made.secret_access_key.encode() not in each.event.payload
    await journaled.check()
    await service.auth.delete_user(admin, "ann")
    assert (await journaled.operations("users/ann"))[-1] == "REMOVE"
    assert (await journaled.operations(key))[-1] == "REMOVE"
    await journaled.check()


async def test_a_write_of_an_object_registers_nothing(journaled: Journaled) -> None:
    """The rows of records are off the path of a PUT."""
    await journaled.service.put("warm", 1)
    journaled.kv.calls.clear()
    await journaled.service.put("a", 1)
    writes = [name for name, _ in journaled.kv.calls if name.startswith(("set", "delete"))]
    assert writes == ["set_many"]
