"""Conditional deletes: the tombstone is the row of a conditional write (docs/design/protocol.md, rule 3; invariant I6).

`test_conditional.py` plays the races of conditional writes, whose code this is; here is what a tombstone changes.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace

import pytest
from graveler_service import Service, reason_of
from lake import Lake, Running, reached

from tarn.client.graveler import GravelerClient
from tarn.core.access import policy
from tarn.core.access.policy import Role, Statement
from tarn.core.branch import TokenKind, seal
from tarn.core.condition import ANY, UNCONDITIONAL, WriteCondition
from tarn.core.entry import TOMBSTONE, Entry, etag_of, pack, tombstone_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn.core.quota import Limits, QuotaKind
from tarn.gate.access import Access
from tarn.kv.port import OutcomeUnknownError
from tarn.rpc.client.inprocess import InProcessTransport
from tarn_auth import authorizer
from tarn_graveler.application import endpoints_of
from tarn_graveler.branch.handle import BranchHandle, claims_nothing

NEW = WriteCondition(if_none_match=True)


def mine(size: int, operation: str) -> bytes:
    """Returns the entry of an operation, identified by its size."""
    return pack(Entry(size, 0, bytes(16), size.to_bytes(16, "big"), operation_id=operation))


def match(size: int) -> WriteCondition:
    return WriteCondition(if_match=etag_of(mine(size, "x")))


@dataclass(frozen=True)
class Client:
    """Deletes and writes by condition, through one replica."""

    lake: Lake

    async def _stage(self, packed: bytes, condition: WriteCondition, path: str) -> bool:
        return await self.lake.graveler.conditional.stage(self.lake.main, path, packed, condition)

    async def delete(
        self, condition: WriteCondition, operation: str = "gone", path: str = "a"
    ) -> None:
        await self._stage(tombstone_of(operation), condition, path)

    async def put(self, size: int, condition: WriteCondition = NEW, path: str = "a") -> None:
        await self._stage(mine(size, f"op-{size}"), condition, path)


async def refusal(work: Awaitable[object]) -> Reason:
    with pytest.raises(TarnError) as caught:
        await work
    assert caught.value.kind in {Kind.FAILED_PRECONDITION, Kind.NOT_FOUND}
    return caught.value.reason


@pytest.fixture
def client(lake: Lake) -> Client:
    return Client(lake)


@pytest.fixture
def rival(other: Lake) -> Client:
    return Client(other)


async def seal_branch(lake: Lake) -> None:
    token = lake.graveler.branches.new_token(TokenKind.CONDITIONAL)
    await BranchHandle(lake.graveler.branches, lake.main).change(
        lambda b, op: seal(b, token, op), claims_nothing
    )


@pytest.mark.parametrize("where", ["staged", "sealed", "committed"])
async def test_a_delete_takes_only_the_object_that_it_names(
    lake: Lake, client: Client, where: str
) -> None:
    await client.put(1)
    if where == "sealed":
        await seal_branch(lake)
    if where == "committed":
        await lake.commit()
    assert await refusal(client.delete(match(2))) is Reason.PRECONDITION_FAILED
    assert await lake.get("a") == 1
    await client.delete(match(1))
    assert await lake.get("a") is None
    assert await refusal(client.delete(match(1), "again")) is Reason.ENTRY_NOT_FOUND
    assert await refusal(client.delete(WriteCondition(if_match=ANY), "x")) is Reason.ENTRY_NOT_FOUND
    await lake.put("b", 9)
    await lake.commit()
    await lake.drop_everything_removed()
    assert [await lake.get(path, "main@") for path in "ab"] == [None, 9]


async def test_size_and_time_are_judged_by_the_row_that_is_replaced(
    lake: Lake, client: Client, running: Running
) -> None:
    await client.put(5)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(client.delete(WriteCondition(size_bytes=5)))
    await reached(held)
    await lake.put("a", 6)  # after the delete has read a row of 5 bytes
    held.open()
    assert await refusal(slow) is Reason.PRECONDITION_FAILED
    assert (
        await refusal(client.delete(WriteCondition(mtime_s=1), "t")) is Reason.PRECONDITION_FAILED
    )
    both = WriteCondition(size_bytes=6, mtime_s=1)
    assert await refusal(client.delete(both, "b")) is Reason.PRECONDITION_FAILED
    assert await lake.get("a") == 6
    await client.delete(WriteCondition(size_bytes=6, mtime_s=0), "done")
    assert await lake.get("a") is None


async def test_a_size_alone_holds_without_an_object(lake: Lake, client: Client) -> None:
    await client.put(1, path="warm")
    before = await lake.staging_rows()
    await client.delete(WriteCondition(size_bytes=5))
    assert await lake.kv.get_many(before, [lake.row_key("a")]) == [None]  # no row for nothing
    await client.put(1)
    await client.delete(match(1))
    await seal_branch(lake)
    # Under a seal, a commit may have missed the tombstone: it is no reason to write none (rule 3).
    await client.delete(WriteCondition(size_bytes=5), "again")
    (row,) = await lake.kv.get_many(await lake.staging_rows(), [lake.row_key("a")])
    assert row is not None
    assert await lake.get("a") is None


async def test_one_of_many_deleters_and_writers_of_one_version_wins(
    lake: Lake, client: Client, rival: Client
) -> None:
    await client.put(1)
    count = 32

    async def outcome(number: int) -> Reason | None:
        who = (client, rival)[number % 2]
        try:
            if number % 3:
                await who.delete(match(1), f"op-{number}")
            else:
                await who.put(100 + number, match(1))
        except TarnError as error:
            return error.reason
        return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(outcome(number)) for number in range(count)]
    outcomes = [task.result() for task in tasks]
    assert outcomes.count(None) == 1
    winner = outcomes.index(None)
    assert await lake.get("a") == (None if winner % 3 else 100 + winner)
    lost = Reason.ENTRY_NOT_FOUND if winner % 3 else Reason.PRECONDITION_FAILED
    assert outcomes.count(lost) == count - 1


async def test_a_creator_comes_after_a_delete_and_is_not_deleted(
    lake: Lake, client: Client, rival: Client, running: Running
) -> None:
    await client.put(1)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(client.delete(match(1), "slow"))
    await reached(held)
    await rival.delete(match(1), "fast")
    await rival.put(2)
    held.open()
    assert await refusal(slow) is Reason.PRECONDITION_FAILED
    assert await lake.get("a") == 2


# ---- seals, commits, and repeated requests


@pytest.mark.parametrize("between", ["nothing", "seal"])
async def test_a_repeated_delete_gets_the_answer_of_its_first_attempt(
    lake: Lake, client: Client, between: str
) -> None:
    await client.put(1)
    await client.delete(match(1))
    if between == "seal":
        await seal_branch(lake)
    await client.delete(match(1))
    (row,) = await lake.kv.get_many(await lake.staging_rows(), [lake.row_key("a")])
    assert row is not None  # where rule 1 requires it
    await client.put(2)
    assert await refusal(client.delete(match(1))) is Reason.PRECONDITION_FAILED
    assert await lake.get("a") == 2


async def test_a_tombstone_that_met_a_seal_is_written_again(
    lake: Lake, client: Client, running: Running
) -> None:
    await client.put(1)
    held = lake.kv.hold("set_if", lake.row_key("a"))
    slow = running.start(client.delete(match(1)))
    await reached(held)
    await lake.commit()  # scans the token before the tombstone is there
    held.open()
    await slow
    await lake.drop_everything_removed()
    assert await lake.get("a") is None


async def test_a_tombstone_that_a_commit_took_is_an_unknown_outcome(
    lake: Lake, client: Client, running: Running
) -> None:
    """Nothing shows whose tombstone it was: the delete may be done, so it is no refusal."""
    await client.put(1)
    held = lake.kv.hold("set_if", lake.row_key("a"), after=True)
    slow = running.start(client.delete(match(1)))
    await reached(held)
    await lake.put("b", 2)
    await lake.commit()
    held.open()
    with pytest.raises(OutcomeUnknownError):
        await slow
    assert await lake.get("a") is None


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_settled(lake: Lake, client: Client, applied: bool) -> None:
    await client.put(1)
    lake.kv.lose("set_if", lake.row_key("a"), applied=applied)
    if applied:
        await client.delete(match(1))
    else:  # it may still arrive
        with pytest.raises(OutcomeUnknownError):
            await client.delete(match(1))
    assert await lake.get("a") == (None if applied else 1)


async def test_a_plain_tombstone_is_of_no_operation(lake: Lake, client: Client) -> None:
    await client.put(1)
    await lake.delete("a")
    assert await refusal(client.delete(match(1))) is Reason.ENTRY_NOT_FOUND


async def test_a_write_does_not_repeat_a_delete_of_the_same_name(
    lake: Lake, client: Client
) -> None:
    await client.put(1)
    await client.delete(match(1), "op-2")
    await client.put(2)  # its operation has the same name
    assert await lake.get("a") == 2
    await client.delete(match(2), "op-2")
    assert await lake.get("a") is None


# ---- the rpc


async def stage(service: Service, packed: bytes, condition: WriteCondition, **more: object) -> bool:
    return await service.stage(str(more.pop("path", "a")), packed, condition=condition, **more)  # type: ignore[arg-type]


async def test_an_rpc_deletes_by_condition(service: Service) -> None:
    await service.put("a", 1)
    etag = etag_of(service.entry(1))
    wrong = WriteCondition(if_match=etag, size_bytes=2)
    assert await reason_of(stage(service, tombstone_of("op"), wrong)) is Reason.PRECONDITION_FAILED
    right = WriteCondition(if_match=etag, size_bytes=1)
    assert await stage(service, tombstone_of("op"), right) is False
    assert await stage(service, tombstone_of("op"), right) is False
    again = stage(service, tombstone_of("another"), right)
    assert await reason_of(again) is Reason.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("packed", "condition"),
    [
        (TOMBSTONE, match(1)),
        (tombstone_of("op"), UNCONDITIONAL),
        (tombstone_of("op"), NEW),
        (tombstone_of("op"), WriteCondition(if_match="x" * 129)),
        (tombstone_of(""), match(1)),
        (tombstone_of("o p"), match(1)),
        (tombstone_of("x" * 65), match(1)),
        (tombstone_of("op") + b"\x0e\x01\x00x", match(1)),
        (tombstone_of("op")[:-1], match(1)),
        (tombstone_of("op")[:50], match(1)),
        (b"\1\1", match(1)),
        (b"\2" + tombstone_of("op")[1:], match(1)),
        (tombstone_of("op")[:20] + b"\1" + tombstone_of("op")[21:], match(1)),
        (TOMBSTONE + b"\x0b\x01\x00\xff", match(1)),
    ],
)
async def test_a_tombstone_is_exactly_a_head_and_an_operation(
    service: Service, packed: bytes, condition: WriteCondition
) -> None:
    await service.put("a", 1)
    with pytest.raises(TarnError) as caught:
        await stage(service, packed, condition)
    assert caught.value.kind is Kind.INVALID
    assert await service.size("main", "a") == 1


@pytest.mark.parametrize(
    "condition", [WriteCondition(size_bytes=1), WriteCondition(if_match=ANY, mtime_s=0)]
)
async def test_only_deletes_ask_for_size_and_time(
    service: Service, condition: WriteCondition
) -> None:
    await service.put("a", 1)
    with pytest.raises(TarnError) as caught:
        await stage(service, service.entry(2, "op"), condition)
    assert caught.value.kind is Kind.INVALID
    assert await service.size("main", "a") == 1


@pytest.mark.parametrize(
    "condition", [match(1), WriteCondition(size_bytes=0), WriteCondition(mtime_s=0)]
)
async def test_every_condition_of_a_delete_needs_the_permission_to_read(
    service: Service, monkeypatch: pytest.MonkeyPatch, condition: WriteCondition
) -> None:
    blind = (Statement(True, ("WriteRepo",), ("repository/*",)),)

    def scoped(roles: tuple[Role, ...], user_id: UserId) -> tuple[Statement, ...]:
        return blind if user_id == "wilma" else policy.statements_of(roles, user_id)

    await service.put("a", 1)
    monkeypatch.setattr(authorizer, "statements_of", scoped)
    call = await service.as_user("wilma", "Analyst")
    assert await stage(service, service.entry(2, "op"), NEW, path="b", call=call) is False
    found = reason_of(stage(service, tombstone_of("op"), condition, call=call))
    assert await found is Reason.ACCESS_DENIED
    assert await service.size("main", "a") == 1


async def test_below_its_feature_level_a_conditional_delete_is_refused(service: Service) -> None:
    """A replica of the last release may run, which takes the tombstone for a damaged row."""
    graveler = replace(service.replica, features=FeatureGate.at(LEVEL_FIRST))
    transport = InProcessTransport(
        endpoints_of(graveler, Access(service.auth, service.clock)), service.clock
    )
    old = replace(service, graveler=GravelerClient(transport))
    await old.put("a", 1)
    refused = stage(old, tombstone_of("op"), WriteCondition(if_match=ANY))
    assert await reason_of(refused) is Reason.FEATURE_LEVEL
    assert await old.size("main", "a") == 1
    await transport.close()


async def test_a_full_quota_stops_no_conditional_delete(service: Service) -> None:
    await service.put("a", 1)
    limits = Limits(staged_objects=1)
    await service.graveler.set_quota(service.admin, QuotaKind.REPOSITORY, "lake", limits)
    assert await reason_of(service.put("b", 1)) is Reason.QUOTA_EXCEEDED
    assert await stage(service, tombstone_of("op"), WriteCondition(if_match=ANY)) is False
