"""Events of records: applied with their change and only with it, registered before it, and made for each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.at_once import BesideKv
from tests.support.clock import ManualClock, SeededIds
from tests.support.faults.gates import GatedKv
from tests.support.record_events import RecordEvent, record_events, registered

from tarn.core.branch import Branch, Token, TokenKind, seal, touch
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, RepositoryId, TokenId
from tarn.core.levels import ALL_FEATURES, LEVEL_FIRST, FeatureGate
from tarn.kv.auth_records import decode_credential
from tarn.kv.embedded import open_embedded
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.mem import MemKv
from tarn.kv.port import (
    COMPANION_KEYS,
    Group,
    Kv,
    OutcomeUnknownError,
    Partition,
    PredicateFailedError,
    SetsBeside,
)
from tarn.kv.record_events import PRINCIPAL, JournaledKv, Principal, changing
from tarn.kv.records import encode_branch
from tarn.kv.register import Register
from tarn.kv.registrations import Registrations, hour_of
from tarn_proto.store.v1 import auth_pb2
from tarn_proto.store.v1 import journal_pb2 as pb

KEYS = InstallationKeys("tarn")
LAKE = KEYS.of_repository(RepositoryId("lake"), "0" * 8)
AUTH = AuthKeys("tarn").partition
TAG = RepositoryKeys.tag("v1")
BRANCH = RepositoryKeys.branch("main")


class Journal:
    """A store whose records leave events."""

    def __init__(self, kv: Kv, features: FeatureGate = ALL_FEATURES) -> None:
        self.store = GatedKv(kv)
        self.clock = ManualClock()
        self.registrations = Registrations(self.store, KEYS, self.clock)
        ids = SeededIds(self.clock, seed=1)
        self.kv = JournaledKv(self.store, "tarn", self.clock, ids, features)

    async def told(self) -> list[RecordEvent]:
        """All events that are registered, in the order of the requests."""
        hours = [hour_of(self.clock.now_us())]
        found = record_events(self.store, self.registrations, hours, self.clock.now_us())
        return [each async for each in found]

    async def rows(self) -> list[tuple[str, str, bytes]]:
        """Operation, key and payload of all events, in the order of the changes."""
        found = sorted(await self.told(), key=lambda each: each.order)
        names = pb.JournalOperation.Name
        return [
            (names(each.event.operation)[18:], each.event.key, each.event.payload) for each in found
        ]

    async def stray(self, partition: Partition) -> int:
        """How many events of a partition are not registered."""
        keys = {each.key for each in await self.store.scan_companions(partition, b"", None, 1_000)}
        return len(keys - {each.registration.event_key for each in await self.told()})


@pytest.fixture(params=["memory", "embedded"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    kv: Kv = MemKv()
    if request.param == "embedded":
        kv = await open_embedded(tmp_path / "tarn.db", durability="os")
    made = Journal(kv)
    yield made
    await made.store.close()


def branch() -> Branch:
    staging = Token(TokenId("t1"), TokenKind.PLAIN, 8, 0)
    return Branch(b"life", staging, (), CommitId("c" * 64), create_time_us=1)


async def test_each_change_of_a_record_has_its_event_and_a_refused_one_has_none(
    journal: Journal,
) -> None:
    first = await journal.kv.set_if(LAKE.refs, TAG, b"1", None)
    with pytest.raises(PredicateFailedError):
        await journal.kv.set_if(LAKE.refs, TAG, b"x", None)
    second = await journal.kv.set_if(LAKE.refs, TAG, b"2", first)
    with pytest.raises(PredicateFailedError):
        await journal.kv.set_if(LAKE.refs, TAG, b"y", first)
    with pytest.raises(PredicateFailedError):
        await journal.kv.delete_if(LAKE.refs, TAG, first)
    await journal.kv.delete_if(LAKE.refs, TAG, second)
    assert await journal.rows() == [
        ("SET", "tags/v1", b"1"),
        ("SET", "tags/v1", b"2"),
        ("REMOVE", "tags/v1", b""),
    ]
    assert await journal.stray(LAKE.refs) == 0


async def test_a_registration_names_the_version_that_its_change_expects(journal: Journal) -> None:
    began_us = journal.clock.now_us()
    first = await journal.kv.set_if(LAKE.refs, TAG, b"1", None)
    journal.clock.advance(1)
    await journal.kv.set_if(LAKE.refs, TAG, b"2", first)
    one, two = [each.registration for each in await journal.told()]
    assert (one.partition, one.key, one.expected) == (LAKE.refs, TAG, None)
    assert (two.partition, two.key, two.expected) == (LAKE.refs, TAG, first)
    assert one.event_key != two.event_key
    assert one.time_us == began_us


async def test_an_event_is_registered_before_its_change_is_sent(journal: Journal) -> None:
    """Also one whose process stops there: a drain sees that the change may come."""
    journal.store.lose("set_if", TAG, applied=False)
    with pytest.raises(OutcomeUnknownError):
        await journal.kv.set_if(LAKE.refs, TAG, b"1", None)
    hour = hour_of(journal.clock.now_us())
    (left,) = await registered(journal.registrations, hour)
    assert left.key == TAG
    assert await journal.told() == []


async def test_a_change_whose_answer_is_lost_has_its_event_if_it_was_made(journal: Journal) -> None:
    journal.store.lose("set_if", TAG, applied=True)
    register = Register[bytes | None](
        journal.kv, LAKE.refs, TAG, lambda value: value, lambda value: value, "tag v1"
    )
    assert await register.change(lambda _: b"1") == b"1"
    assert await journal.rows() == [("SET", "tags/v1", b"1")]


@pytest.mark.parametrize("applied", [True, False])
async def test_without_a_registration_nothing_changes(applied: bool) -> None:
    """And the caller knows it: the lost answer was not that of the change."""

    class Refusing(MemKv):
        async def set_many(
            self, partition: Partition, groups: Sequence[Group]
        ) -> list[TarnError | None]:
            if applied:
                await super().set_many(partition, groups)
            return [OutcomeUnknownError("lost")] * len(groups)

    journal = Journal(Refusing())
    for work in (
        journal.kv.set_if(LAKE.refs, TAG, b"1", None),
        journal.kv.delete_if(LAKE.refs, TAG, SeededIds(journal.clock).nonce()),  # type: ignore[arg-type]
    ):
        with pytest.raises(TarnError) as caught:
            await work
        assert caught.value.kind is Kind.UNAVAILABLE
    key = RepositoryKeys.expired(CommitId("c"))
    group = Group(key, ((key, b"1"),))
    (outcome,) = await journal.kv.set_many(LAKE.commits, [group])
    assert outcome is not None
    assert outcome.kind is Kind.UNAVAILABLE
    assert await journal.kv.get_many(LAKE.refs, [TAG]) == [None]
    assert await journal.kv.get_many(LAKE.commits, [key]) == [None]


async def test_the_event_of_a_branch_says_what_changed_it(journal: Journal) -> None:
    old, key = branch(), BRANCH
    token = Token(TokenId("t2"), TokenKind.CONDITIONAL, 4, 0)
    sealed = seal(old, token, b"op2")
    pinned = touch(sealed, b"op3")
    reset = replace(pinned, sealed=(), reset_count=1, recent_op_ids=(b"op4",))
    compacted = replace(reset, compaction_end_time_us=5, recent_op_ids=(b"op5",))
    marked = replace(compacted, is_deleted=True)
    version = await journal.kv.set_if(LAKE.refs, key, encode_branch(old, is_pending=True), None)
    version = await journal.kv.set_if(LAKE.refs, key, encode_branch(old), version)
    before = old
    for after in (sealed, pinned, reset, compacted):
        with changing(before):
            version = await journal.kv.set_if(LAKE.refs, key, encode_branch(after), version)
        before = after
    version = await journal.kv.set_if(LAKE.refs, key, encode_branch(marked), version)
    with changing(None, b"gone"):
        await journal.kv.delete_if(LAKE.refs, key, version)
    found = sorted(await journal.told(), key=lambda each: each.order)
    assert [name for name, _, _ in await journal.rows()] == [
        "CREATE",
        "CREATE",
        "SEAL",
        "TOUCH",
        "RESET",
        "COMPACT",
        "REMOVE_BRANCH",
        "REMOVE_BRANCH",
    ]
    assert [each.event.cause for each in found[2:6]] == [b"op2", b"op3", b"op4", b"op5"]
    assert found[-1].event.cause == b"gone"
    assert [each.registration.token for each in found] == [old.staging] * 2 + [token] * 5 + [None]
    assert found[2].event.payload == encode_branch(sealed), "the whole record after the change"


async def test_an_event_says_for_whom_it_was_made(journal: Journal) -> None:
    outside = PRINCIPAL.set(Principal(b"ann", "TARNSESSION"))
    first = await journal.kv.set_if(LAKE.refs, TAG, b"1", None)
    PRINCIPAL.reset(outside)
    await journal.kv.delete_if(LAKE.refs, TAG, first)
    found = sorted(await journal.told(), key=lambda each: each.order)
    assert [each.event.user_uid for each in found] == [b"ann", b""]
    assert [each.event.session_uid for each in found] == [b"TARNSESSION", b""]
    assert {each.event.time_us for each in found} == {journal.clock.now_us()}


async def test_rows_beside_commits_have_events_and_commits_have_none(journal: Journal) -> None:
    commit = RepositoryKeys.commit(CommitId("c1"))
    expired, erased = RepositoryKeys.expired(CommitId("c1")), RepositoryKeys.erased(b"\x01" * 16)
    groups = [Group(key, ((key, key[-4:]),)) for key in (commit, expired, erased)]
    assert await journal.kv.set_many(LAKE.commits, groups) == [None] * 3
    assert await journal.rows() == [
        ("EXPIRE", expired.decode(), expired[-4:]),
        ("ERASE", erased.decode(), erased[-4:]),
    ]
    assert len(await journal.store.scan(LAKE.commits, b"", None, 10)) == 3
    assert await journal.stray(LAKE.commits) == 0


async def test_records_that_are_removed_whatever_they_are_have_events_too(
    journal: Journal,
) -> None:
    """A key pair that is gone, or that changes meanwhile, is removed once; an index leaves nothing."""
    record = auth_pb2.CredentialRecord(access_key_id="A", sealed_secret=b"sealed", user_uid=b"u")
    one, other = AuthKeys.credential("A"), AuthKeys.credential("B")
    owned = AuthKeys.owned(b"u", "A")
    await journal.kv.set_if(AUTH, one, record.SerializeToString(), None)
    await journal.kv.set_if(AUTH, owned, AuthKeys.OWNED_VALUE, None)
    journal.store.lose("delete_if", one, applied=True)
    await journal.kv.delete_many(AUTH, [one, other, owned])
    assert await journal.store.scan(AUTH, b"", None, 10) == []
    (made, gone) = await journal.rows()
    assert (made[:2], gone) == (("SET", "credentials/A"), ("REMOVE", "credentials/A", b""))
    assert b"sealed" not in made[2]
    assert decode_credential(made[2]).user_uid == b"u"


async def test_a_record_that_changes_without_end_is_not_removed_silently() -> None:
    class Restless(MemKv):
        async def delete_if(self, *args: object, **kwargs: object) -> None:
            raise PredicateFailedError(b"k", None)

    journal = Journal(Restless())
    key = AuthKeys.user("ann")
    await journal.kv.set_if(AUTH, key, b"1", None)
    with pytest.raises(OutcomeUnknownError):
        await journal.kv.delete_many(AUTH, [key])


async def test_other_rows_are_written_as_without_a_journal(journal: Journal) -> None:
    token = Token(TokenId("t"), TokenKind.CONDITIONAL, 4, 0)
    rows = LAKE.token("main", token)  # type: ignore[arg-type]
    event = (COMPANION_KEYS + bytes(16), b"its own")
    first = await journal.kv.set_if(rows, b"key/a", b"1", None, companions=[event])
    await journal.kv.delete_if(rows, b"key/a", first)
    await journal.kv.set_if(LAKE.refs, RepositoryKeys.upload_day(3), b"", None)
    await journal.kv.delete_many(LAKE.refs, [RepositoryKeys.upload_day(3)])
    await journal.kv.set_if(LAKE.tasks(1), b"task/1", b"", None)
    await journal.kv.set_many(LAKE.changed, [Group(b"k", ((b"k", b"v"),))])
    await journal.kv.delete_many(LAKE.reflog, [b"log/main/1"])
    assert await journal.told() == []
    assert {name for name, _ in journal.store.calls} <= {
        *("set_if", "delete_if", "delete_many", "set_many"),
        *("scan", "scan_companions"),
    }
    (left,) = await journal.kv.scan_companions(rows, b"", None, 10)
    assert left.value == b"its own"


async def test_the_events_of_a_write_that_tells_of_another_row_are_counted() -> None:
    """As those of `set_many`, whatever tells of the row beside it."""
    counted: list[tuple[str, int]] = []
    store, clock = BesideKv(MemKv()), ManualClock()
    ids = SeededIds(clock, seed=1)

    def count(root: str, size: int) -> None:
        counted.append((root, size))

    kv = JournaledKv(store, "tarn", clock, ids, ALL_FEATURES, count)
    assert isinstance(kv, SetsBeside)
    rows = LAKE.token("main", Token(TokenId("t"), TokenKind.PLAIN, 4, 0))  # type: ignore[arg-type]
    beside = (LAKE.refs, BRANCH)
    version = await store.set_if(*beside, b"record", None)
    for events in ((), ((COMPANION_KEYS + bytes(16), b"event"),)):
        group = Group(b"k", ((b"k", b"v"),), events)
        assert await kv.set_beside(rows, group, beside) == version
        assert await kv.set_many(rows, [group]) == [None]
        assert counted == [(LAKE.root, len(b"journal/") + 16 + 5)] * 2 * len(events)
    without = JournaledKv(MemKv(), "tarn", clock, ids, ALL_FEATURES)
    assert not isinstance(without, SetsBeside), (
        "the store cannot, so the journal does not promise it"
    )


async def test_a_record_of_no_kind_is_refused(journal: Journal) -> None:
    """So whoever adds one decides whether the journal has it."""
    for work in (
        lambda: journal.kv.set_if(LAKE.refs, b"new/x", b"", None),
        lambda: journal.kv.delete_many(LAKE.refs, [b"new/x"]),
        lambda: journal.kv.set_many(LAKE.commits, [Group(b"new/x", ((b"new/x", b""),))]),
    ):
        with pytest.raises(TarnError) as caught:
            await work()
        assert caught.value.reason is Reason.INTERNAL


async def test_below_its_feature_level_there_are_no_events() -> None:
    """Release 0.9.0 writes none, so a journal would have gaps."""
    journal = Journal(MemKv(), FeatureGate.at(LEVEL_FIRST))
    first = await journal.kv.set_if(LAKE.refs, TAG, b"1", None)
    await journal.kv.delete_if(LAKE.refs, TAG, first)
    assert await journal.store.scan_companions(LAKE.refs, b"", None, 10) == []
    hour = hour_of(journal.clock.now_us())
    assert await registered(journal.registrations, hour) == []
