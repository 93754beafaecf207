"""Rules of equal objects: entries with one identity, and each with an address of its own (`Values`).

To a client, equal objects are one value, and a commit may keep the entry that it has: `as_told` is the history in which
they are one, and the checker reads it. An address matters where a block may go, so this module looks at addresses, too:

- An entry comes only from a put of its path that did not surely fail (I2).
- A commit that does not take an entry over from its parent has the newest one by its address (I4). So no build keeps an
  older one of equal entries, whose block may be erased (docs/design/compaction.md).
- An erasure discards only what is the newest entry of its path (I4).
- An object that is written when an equal one is erased is the new entry of its path, also in commits (I4).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.sim.versioning import REPOSITORY
from tests.support.check.history import MERGES, NEVER, History, Op, OpKind, Outcome, shown

from tarn.block.port import BlockKey
from tarn.core.ids import physical_path
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.compaction.discarding import Discarded, Discarding, NamedEntry
from tarn_graveler.records.branches import BranchName, BranchVersion

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["Discard", "as_told", "noted_discards", "wrong_addresses"]


@dataclass(frozen=True, slots=True)
class Discard:
    """An uncommitted entry that an erasure has discarded.

    Attributes:
        key: of the block.
        begun: time of the history at which the call began.
    """

    branch: str
    path: str
    key: BlockKey
    begun: int


@contextlib.contextmanager
def noted_discards(worlds: Sequence[World]) -> Iterator[None]:
    """Records each entry that graveler discards.

    The history has each attempt to discard an entry as a reset of its path that may take effect.
    """
    discard, attempt = Discarding.discard, Discarding._discard

    async def noted(
        self: Discarding, name: BranchName, entries: Sequence[NamedEntry]
    ) -> list[Discarded]:
        world, repository = worlds[-1], name.repository
        begun = world.history.tick()
        outcomes = await discard(self, name, entries)
        for (path, address), outcome in zip(entries, outcomes, strict=True):
            if outcome is Discarded.DISCARDED:
                branch = _told(name)
                key = BlockKey(repository.storage_namespace, physical_path(address))
                world.log(f"discards {branch}/{path}, {key.path}")
                world.statistics["erasure: entries discarded"] += 1
                world.discards.append(Discard(branch, path, key, begun))
        return outcomes

    async def attempted(
        self: Discarding, handle: BranchHandle, record: BranchVersion, pending: Sequence[NamedEntry]
    ) -> dict[NamedEntry, Discarded]:
        history, discards = worlds[-1].history, worlds[-1].erased.discards
        resets = []
        for path in sorted({path for path, _ in pending}):
            resets.append(history.begin("erasure", OpKind.RESET, _told(handle.name)))
            resets[-1].part = path
            discards.add(resets[-1].number)
        try:
            return await attempt(self, handle, record, pending)
        finally:
            for op in resets:
                history.finish(op, Outcome.INFO, "an erasure may discard it")

    with (
        mock.patch.object(Discarding, "discard", noted),
        mock.patch.object(Discarding, "_discard", attempted),
    ):
        yield


def _told(name: BranchName) -> str:
    return f"{name.repository.repository_id}/{name.branch_id}"


def as_told(world: World) -> History:
    """Returns the history as clients see it, in which equal objects are one value."""
    history, same = world.history, world.values.same
    if not world.values.has_equals:
        return history

    def told(op: Op) -> Op:
        values: dict[str, Any] = {
            name: same(value)
            for name in ("value", "expected", "observed")
            if (value := getattr(op, name)) is not None
        }
        return replace(op, **values)

    commits = {
        commit_id: replace(
            commit, contents={path: same(value) for path, value in commit.contents.items()}
        )
        for commit_id, commit in history.commits.items()
    }
    return replace(history, ops=[told(op) for op in history.ops], commits=commits)


def wrong_addresses(world: World) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the addresses of entries: the invariant, and a description."""
    puts = _puts(world)
    yield from _unwritten(world, puts)
    yield from _committed_too_old(world, puts)
    yield from _erased_instead(world, puts)
    for discard in world.discards:
        newer = _newer_than(world, puts[discard.branch, discard.path], discard.key, discard.begun)
        if newer is not None:
            text = f"an erasure discarded {discard.key.path} at {discard.branch}/{discard.path}"
            yield "I4", f"{text}, where a newer entry was acknowledged: {newer.line()}"


_Puts = Mapping[tuple[str, str], Sequence[Op]]
"""The puts that have taken effect or may have, by branch and path."""


def _puts(world: World) -> _Puts:
    puts: defaultdict[tuple[str, str], list[Op]] = defaultdict(list)
    for op in world.history.ops:
        if op.kind is OpKind.PUT and op.outcome is not Outcome.FAIL and op.key is not None:
            puts[op.branch, op.key].append(op)
    return puts


def _unwritten(world: World, puts: _Puts) -> Iterator[tuple[str, str]]:
    """Yields entries that no put of their path wrote: an equal one of another path, or one whose put failed."""
    written: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for (branch, path), ops in puts.items():
        written[branch.split("/")[0], path].update(op.value or 0 for op in ops)
    if world.history.first:  # it goes on over a rebuilt store
        for commit in world.history.commits.values():
            for path, value in commit.contents.items():
                written[REPOSITORY, path].add(value)
    for op in world.history.ops:
        if op.kind not in {OpKind.GET, OpKind.LIST} or not op.is_ok or op.key is None:
            continue
        value = op.value or 0
        if value > 0 and value not in written[op.branch.split("/")[0], op.key]:
            yield "I2", f"{shown(value)} was never put at its path: {op.line()}"


def _committed_too_old(world: World, puts: _Puts) -> Iterator[tuple[str, str]]:
    """Yields entries of acknowledged commits that are neither their parent's nor the newest ones."""
    commits, values = world.history.commits, world.values
    for op in world.history.ops:
        commit = commits.get(op.commit_id)
        if op.kind is not OpKind.COMMIT or not op.is_ok or op.is_claim or commit is None:
            continue
        parent = commits.get(commit.parents[0]) if commit.parents else None
        if parent is None:
            continue
        for path, value in commit.contents.items():
            before = parent.contents.get(path, 0)
            if value <= 0 or (before > 0 and values.block(before) == values.block(value)):
                continue
            newer = _newer_than(world, puts[op.branch, path], values.block(value), op.inv)
            if newer is not None:
                text = f"{op.branch}/{path}: #{op.number} commit has {shown(value)}"
                yield "I4", f"{text}, where a newer entry was acknowledged: {newer.line()}"


def _erased_instead(world: World, puts: _Puts) -> Iterator[tuple[str, str]]:
    """Yields reads and commits of an erased entry, although an object was written at its path since it is erased."""
    values, since = world.values, world.erased.since
    if not since:
        return
    undoing: defaultdict[str, list[Op]] = defaultdict(list)
    for op in world.history.ops:
        is_kind = op.kind in _UNDOING and op.outcome is not Outcome.FAIL
        if is_kind and op.number not in world.erased.discards:
            undoing[op.branch].append(op)
    for op, path, value in _seen(world):
        erased = since.get(values.block(value)) if value > 0 else None
        if erased is None:
            continue
        for put in puts[op.branch, path]:
            is_between = put.is_ok and erased < put.inv and put.end < op.inv
            is_there = is_between and _stays(world, put, op, undoing[op.branch])
            if is_there and not _is_beneath_a_discard(world, put, puts[op.branch, path]):
                text = f"{op.branch}/{path}: #{op.number} {op.kind} has the erased {shown(value)}"
                yield "I4", f"{text}, where an object was written since: {put.line()}"


def _seen(world: World) -> Iterator[tuple[Op, str, int]]:
    """Yields each read and each acknowledged commit with the paths and values that it shows."""
    for op in world.history.ops:
        if not op.is_ok:
            continue
        if op.kind in {OpKind.GET, OpKind.LIST} and op.key is not None:
            yield op, op.key, op.value or 0
        commit = world.history.commits.get(op.commit_id)
        if op.kind is OpKind.COMMIT and not op.is_claim and commit is not None:
            for path, value in commit.contents.items():
                yield op, path, value


_UNDOING = {OpKind.DELETE, OpKind.RESET, OpKind.MOVE, OpKind.REMOVE, OpKind.CREATE, *MERGES}


def _stays(world: World, put: Op, until: Op, undoing: Sequence[Op]) -> bool:
    """Whether nothing can have taken the entry of a put away before another operation ends."""
    if put.is_upload or put.calls > 1 or world.erased.has_row(world.values.block(put.value or 0)):
        return False
    return not any(
        op.inv < until.end and put.inv < op.end and op.key in {None, put.key} for op in undoing
    )


def _is_beneath_a_discard(world: World, put: Op, puts: Sequence[Op]) -> bool:
    """Whether the entry of a put may have been replaced by one that an erasure has discarded: both are gone then."""
    values = world.values
    replaced_by = {
        values.block(op.value or 0) for op in puts if op.ret > put.inv and op.value != put.value
    }
    return any(
        (discard.branch, discard.path) == (put.branch, put.key) and discard.key in replaced_by
        for discard in world.discards
    )


def _newer_than(world: World, puts: Sequence[Op], key: BlockKey, time: float) -> Op | None:
    """Returns a put of another block that began after all puts of a block had ended, and ended before a time.

    Only puts whose effects end with them: none without an answer, and no upload.
    """
    values = world.values
    of_block = [op for op in puts if values.block(op.value or 0) == key]
    if any(op.is_upload for op in of_block):
        return None
    last = max((op.ret for op in of_block), default=NEVER)
    others = (op for op in puts if op.is_ok and last < op.inv and op.end < time)
    return next((op for op in others if values.block(op.value or 0) != key), None)
