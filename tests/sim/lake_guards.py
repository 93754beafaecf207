"""All guards of the branch protocol, and the replacements that disable them (docs/design/protocol-guards.md).

A replacement does what a plausible implementation without the rule would do. If a known system behaves
that way, the guard names it.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.sim.collection_guards import COLLECTION_GUARDS
from tests.sim.compaction_guards import COMPACTION_GUARDS
from tests.sim.delete_guards import DELETE_GUARDS
from tests.sim.drop_guards import DROP_GUARDS
from tests.sim.erase_guards import ERASE_GUARDS
from tests.sim.leap_guards import LEAP_GUARDS
from tests.sim.move_guards import MOVE_GUARDS
from tests.sim.online_guards import ONLINE_GUARDS
from tests.sim.overwriting import overwriting
from tests.sim.part_guards import PART_GUARDS
from tests.sim.reflog_guards import REFLOG_GUARDS
from tests.sim.session_guards import SESSION_GUARDS
from tests.sim.stamp_guards import STAMP_GUARDS
from tests.sim.upload_guards import UPLOAD_GUARDS
from tests.sim.view_guards import VIEW_GUARDS
from tests.support.faults.guards import Guard, Weakening

import tarn_graveler.branch.committing
import tarn_graveler.branch.conditional
import tarn_graveler.branch.staging
from tarn.aio.batcher import Batcher
from tarn.core.branch import (
    AfterLostRace,
    Branch,
    Pin,
    Token,
    publish_commit,
    seal,
)
from tarn.core.entry import is_tombstone
from tarn.kv.keys import RepositoryKeys, path_key
from tarn.kv.port import Group, OutcomeUnknownError
from tarn_graveler.branch.committing import CommitRequest, Committing
from tarn_graveler.branch.conditional import ConditionalStaging
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.branch.layers import LayerRow
from tarn_graveler.branch.publications import Publications
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.staging import Staging
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.records.branches import BranchChange, Branches, BranchName, BranchVersion
from tarn_graveler.records.settling import Attempts

__all__ = ["GUARDS", "RARE_LAKE_GUARDS"]


def _always_takes_writes(self: Branch, other: Branch) -> bool:
    return True


async def _run_open(self: Batcher[Any, Any, Any], key: Any) -> None:
    """Admits callers to a batch that was already sent; late callers get the older answer."""
    batch = self._open[key]
    sent = [item for item, _ in batch]
    try:
        results = dict(zip(sent, await self._send(key, sent), strict=True))
        late = [item for item, _ in batch if item not in results]
        if late:  # other items, e.g. rows
            results |= dict(zip(late, await self._send(key, late), strict=True))
    except BaseException as error:
        del self._open[key]
        for _, answer in batch:
            if not answer.done():
                if isinstance(error, Exception):
                    answer.set_exception(error)
                else:
                    answer.cancel()
        if not isinstance(error, Exception):
            raise
        return
    del self._open[key]
    for item, answer in batch:
        result = results.get(item)
        if not answer.done():
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)


async def _by_cached_record(
    self: Reading,
    name: BranchName,
    read: Callable[[Branch], Awaitable[Any]],
) -> Any:
    """Reads by a cached record, without a check that it is current."""
    cached = self._branches.cached(name)
    record = cached or (await self._branches.fresh(name)).branch
    return await read(record)


_reading_init = Reading.__init__


def _patient_reading(self: Reading, *args: Any) -> None:
    _reading_init(self, *args)
    self._read_seconds_max = 1e9


class _OnlyItsToken(Branch):
    """A record that compares only its staging token, as lakeFS does."""

    def same_layers(self, other: Branch) -> bool:
        return self.incarnation == other.incarnation and self.staging == other.staging


_verify = Staging._verify


async def _verify_token(self: Staging, *args: Any, **kwargs: Any) -> Branch:
    record = await _verify(self, *args, **kwargs)
    return _OnlyItsToken(*(getattr(record, name) for name in Branch.__slots__))


class _Agreeable(Branch):
    def same_layers(self, other: Branch) -> bool:
        return True


async def _verify_nothing(self: Staging, *args: Any, **kwargs: Any) -> Branch:
    record = await _verify(self, *args, **kwargs)
    return _Agreeable(*(getattr(record, name) for name in Branch.__slots__))


def _trusts_sealed(row: LayerRow) -> bool:
    return row.packed is not None and not is_tombstone(row.packed)


_fresh = BranchHandle.fresh


async def _fresh_plainly(self: BranchHandle, *, written: bool) -> Branch:
    return await _fresh(self, written=False)


@contextlib.contextmanager
def _known(written: bool) -> Iterator[None]:
    yield


async def _set_blindly(
    self: ConditionalStaging,
    name: BranchName,
    record: Branch,
    path: str,
    value: bytes,
    newest: Any,
    event: Any,
) -> None:
    partition = self._layers.partition(name, record.staging)
    key = path_key(path)
    (error,) = await self._kv.set_many(partition, [Group(key, ((key, value),), event)])
    if error is not None:
        raise error


async def _verify_no_condition(
    self: ConditionalStaging, handle: BranchHandle, *, written: bool
) -> Branch:
    record = await _fresh(handle, written=written)
    return _Agreeable(*(getattr(record, name) for name in Branch.__slots__))


_newest = ConditionalStaging._newest


async def _newest_as_staged(self: ConditionalStaging, *args: Any) -> Any:
    """Treats the row as one in the staging token, wherever it is."""
    return replace(await _newest(self, *args), is_staged=True)


async def _no_seal(self: Committing, handle: BranchHandle, request: CommitRequest) -> BranchVersion:
    """Scans the staging token while it takes writes, and replaces it only in the last step."""
    current = await handle.version()
    sealed = seal(current.branch, self._branches.new_token(), self._branches.new_op_id())
    return BranchVersion(sealed, current.predicate)


def _is_commit(before: Branch, after: Branch) -> bool:
    return after.commit_id != before.commit_id


def _overlap(built_from: Branch, current: Branch, pin: Pin | None = None) -> AfterLostRace:
    """Applies the "overlapping sealed tokens" rule of the KV proposal (docs/design/departures.md)."""
    if set(built_from.sealed) & set(current.sealed):
        return AfterLostRace.REUSE
    return AfterLostRace.TAKEN


def _finish_overlap(built_from: Branch, current: Branch, commit_id: Any, op_id: bytes) -> Branch:
    kept = tuple(token for token in current.sealed if token not in built_from.sealed)
    after = publish_commit(built_from, built_from, commit_id, op_id)
    return replace(after, staging=current.staging, sealed=kept)


def _forget_overlap(built_from: Branch, current: Branch, op_id: bytes) -> Branch:
    after = _finish_overlap(built_from, current, current.commit_id, op_id)
    return replace(after, commit_id=current.commit_id)


async def _assume_applied(
    self: Branches,
    name: BranchName,
    before: BranchVersion,
    after: Branch,
    attempts: Attempts,
) -> BranchChange:
    """Treats an unknown outcome as success."""
    partition = self._repositories.keys_of(name.repository).refs
    (found,) = await self._kv.get_many(partition, [RepositoryKeys.branch(name.branch_id)])
    if found is None:
        raise OutcomeUnknownError("gone")
    return BranchChange(before.branch, after, BranchVersion(after, found.predicate))


_page = UncommittedChanges.page


async def _by_oldest(
    self: UncommittedChanges, name: BranchName, branch: Branch, tokens: Sequence[Token], **page: Any
) -> Any:
    """Takes the oldest row of a path of several sealed tokens."""
    newest, *sealed = tokens
    return await _page(self, name, branch, (newest, *reversed(sealed)), **page)


_judge = Attempts.judge


def _judge_for_good(self: Attempts, current: Branch) -> tuple[Branch, Branch] | None:
    """Treats an attempt that a settling read does not find as not made."""
    applied = _judge(self, current)
    self._pending = []
    return applied


_change = BranchHandle.change


async def _change_once(
    self: BranchHandle, decide: Callable[[Branch, bytes], Branch], holds: Callable[[Branch], bool]
) -> BranchChange:
    """Goes on with whatever record the read found that settled a lost answer."""
    del holds
    return await _change(self, decide, claims_nothing)


async def _always_finds(self: Publications, *args: Any) -> bool:
    return True


GUARDS: Sequence[Guard] = (
    Guard(
        "write-rechecks",
        "1",
        "I1 I3",
        "a write is acknowledged when its row is durable",
        (Weakening(Branch, "takes_writes_as", _always_takes_writes),),
    ),
    Guard(
        "batch-closes",
        "1",
        "I1 I3",
        "a re-check joins a read that is already in flight",
        (Weakening(Batcher, "_run", _run_open),),
        runs=300,
    ),
    Guard(
        "written-is-unknown",
        "1",
        "I2",
        "a write whose re-check fails is reported as not done",
        (Weakening(BranchHandle, "fresh", _fresh_plainly),),
        runs=100,
    ),
    Guard(
        "read-verifies",
        "2",
        "I1",
        "reads trust a cached record",
        (Weakening(Reading, "by_record", _by_cached_record),),
    ),
    Guard(
        "read-within-drop-delay",
        "2",
        "I1",
        "a read may take longer than the drop delay",
        (Weakening(Reading, "__init__", _patient_reading),),
        runs=100,
    ),
    Guard(
        "delete-verifies",
        "3",
        "I1 I3",
        "a delete trusts the record that it began with",
        (Weakening(Staging, "_verify", _verify_nothing),),
        runs=200,
    ),
    Guard(
        "delete-verifies-all",
        "3",
        "I1 I3",
        "a delete verifies its staging token only (lakeFS)",
        (Weakening(Staging, "_verify", _verify_token),),
        runs=1500,
    ),
    Guard(
        "sealed-tombstone",
        "3",
        "I1 I3",
        "a tombstone in a sealed token is a reason to skip the write (lakeFS)",
        (Weakening(tarn_graveler.branch.staging, "_needs_tombstone", _trusts_sealed),),
        runs=300,
    ),
    Guard(
        "condition-compares",
        "3",
        "I6",
        "a conditional write writes its row whatever the current row is",
        (Weakening(ConditionalStaging, "_set", _set_blindly),),
        runs=600,
    ),
    Guard(
        "condition-verifies",
        "3",
        "I1 I6",
        "a conditional write trusts the record that it began with",
        (Weakening(ConditionalStaging, "_verify", _verify_no_condition),),
        runs=300,
    ),
    Guard(
        "condition-written-is-unknown",
        "3",
        "I2",
        "another row after its own was written is reported as a refusal",
        (Weakening(tarn_graveler.branch.conditional, "unknown_if", _known),),
        runs=300,
    ),
    Guard(
        "condition-own-row",
        "3",
        "I1 I3 I6",
        "its own row in a sealed token or a commit counts like one in the staging token",
        (Weakening(ConditionalStaging, "_newest", _newest_as_staged),),
        runs=600,
    ),
    Guard(
        "seal",
        "4",
        "I1 I3",
        "a commit scans a token that takes writes",
        (Weakening(Committing, "_seal", _no_seal),),
    ),
    Guard(
        "finish-compares",
        "4",
        "I1 I4",
        "a commit's last step sets the record unconditionally",
        (Weakening(Branches, "compare_and_set", overwriting(_is_commit)),),
    ),
    Guard(
        "no-overlap-rule",
        "4",
        "I1 I3 I4",
        "a failed last step is repeated if any sealed token is left (the KV proposal)",
        (
            Weakening(tarn_graveler.branch.committing, "after_lost_race", _overlap),
            Weakening(tarn_graveler.branch.committing, "publish_commit", _finish_overlap),
            Weakening(tarn_graveler.branch.committing, "forget_sealed", _forget_overlap),
        ),
        runs=150,
    ),
    *DROP_GUARDS,
    Guard(
        "unknown-is-settled",
        "8",
        "I1 I4",
        "an unknown outcome is treated as success",
        (Weakening(Branches, "_settle", _assume_applied),),
        runs=400,
    ),
    Guard(
        "published-is-looked-up",
        "8",
        "I4",
        "a finish that the record forgot is treated as success",
        (Weakening(Publications, "find", _always_finds),),
        runs=600,
    ),
    *UPLOAD_GUARDS,
    *MOVE_GUARDS,
    *PART_GUARDS,
    *COLLECTION_GUARDS,
    *ONLINE_GUARDS,
    *ERASE_GUARDS,
    *COMPACTION_GUARDS,
    *LEAP_GUARDS,
    *REFLOG_GUARDS,
    Guard(
        "difference-newest-first",
        "layers",
        "I1",
        "uncommitted differences read sealed tokens in the wrong order",
        (Weakening(UncommittedChanges, "page", _by_oldest),),
        runs=300,
    ),
    Guard(
        "late-is-pending",
        "8",
        "I4",
        "an attempt that a settling read did not find is treated as not made",
        (Weakening(Attempts, "judge", _judge_for_good),),
        runs=400,
    ),
    *STAMP_GUARDS,
    *DELETE_GUARDS,
    *VIEW_GUARDS,
    *SESSION_GUARDS,
)

RARE_LAKE_GUARDS: Sequence[Guard] = (
    Guard(
        "change-holds",
        "8",
        "I1 I6 I9",
        "an operation goes on with whatever record the read found that settled a lost answer",
        (Weakening(BranchHandle, "change", _change_once),),
        runs=400,
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
