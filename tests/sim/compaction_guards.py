"""Guards of compactions, and the replacements that disable them (see `lake_guards`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.faults.guards import Guard, Weakening

import tarn_graveler.branch.committing
import tarn_graveler.branch.handle
import tarn_graveler.branch.head_moves
import tarn_graveler.compaction.compacting
from tarn.core.branch import (
    AfterLostRace,
    Branch,
    Pin,
    Token,
    after_lost_race,
    finish_compaction,
    seal,
)
from tarn_graveler.branch.committing import Committing
from tarn_graveler.branch.conditional import ConditionalStaging
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.staging import Staging
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.compaction.compacting import Compacting, CompactionResult
from tarn_graveler.records.branches import BranchName, BranchVersion

__all__ = ["COMPACTION_GUARDS"]


def _without_compacted(record: Branch) -> Branch:
    return replace(record, compacted_metarange_id=None)


def _reuse(built_from: Branch, current: Branch, pin: Pin | None) -> AfterLostRace:
    """Publishes its listing after any change."""
    return AfterLostRace.REUSE


def _over_any(
    built_from: Branch,
    current: Branch,
    compacted: Pin | None,
    op_id: bytes,
    *,
    now_us: int,
) -> Branch:
    """Removes those of its tokens that are left."""
    ours = replace(built_from, sealed=tuple(t for t in built_from.sealed if t in current.sealed))
    pins = () if compacted is None else (compacted,)
    over = replace(current, sealed=ours.sealed, pins=pins)
    after = finish_compaction(ours, over, compacted, op_id, now_us=now_us)
    return replace(after, sealed=tuple(t for t in current.sealed if t not in ours.sealed))


def _drop_newer(*of: Any, **how: Any) -> Branch:
    """Removes all sealed tokens, also those that came after its seal."""
    built_from, current, *more = of
    only_ours = replace(current, sealed=built_from.sealed)
    return finish_compaction(built_from, only_ours, *more, **how)


_begin = Compacting._begin


async def _no_seal(
    self: Compacting, handle: BranchHandle, filled: Token | None, *, force: bool
) -> BranchVersion | CompactionResult:
    """Scans the staging token while it takes writes, and replaces it only in the last step."""
    begun = await _begin(self, handle, None, force=force)
    if isinstance(begun, CompactionResult) or filled is None:
        return begun
    branch = begun.branch
    sealed = replace(branch, staging=self._branches.new_token(), sealed=branch.tokens)
    return BranchVersion(sealed, begun.predicate)


_list = Committing._list


async def _list_over_head(self: Committing, name: BranchName, record: Branch) -> Any:
    return await _list(self, name, _without_compacted(record))


def _taken(built_from: Branch, current: Branch, pin: Pin | None = None) -> AfterLostRace:
    """Takes tokens that have left the record for committed as soon as there is another commit."""
    after = after_lost_race(built_from, current, pin)
    is_gone = current.commit_id != built_from.commit_id and not (
        set(built_from.sealed) & set(current.sealed)
    )
    is_reset = current.reset_count != built_from.reset_count
    return AfterLostRace.TAKEN if is_gone and not is_reset else after


def _on_any_compacted(built_from: Branch, current: Branch, pin: Pin | None = None) -> AfterLostRace:
    """Compares the commits only, not the compacted listings, so that the last step clears one that it has not seen."""
    alike = replace(built_from, compacted_metarange_id=current.compacted_metarange_id)
    return after_lost_race(alike, current, pin)


def _seal_anew(branch: Branch, token: Token, op_id: bytes) -> Branch:
    """Makes a record of the tokens and the commit only."""
    return _without_compacted(seal(branch, token, op_id))


_newest = ConditionalStaging._newest


async def _newest_over_head(
    self: ConditionalStaging, name: BranchName, record: Branch, path: str
) -> Any:
    return await _newest(self, name, _without_compacted(record), path)


class _LayersOverHead:
    """Layers for deletes, which read the commit instead of the compacted listing."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layers, name)

    async def find(self, name: BranchName, branch: Branch, paths: Sequence[str]) -> Any:
        return await self._layers.find(name, _without_compacted(branch), paths)


_staging_init = Staging.__init__


def _staging_over_head(
    self: Staging,
    kv: Any,
    branches: Any,
    layers: Any,
    tasks: Any,
    age: Any,
    *rest: Any,
    **named: Any,
) -> None:
    _staging_init(self, kv, branches, layers, tasks, age, *rest, **named)
    self._layers = _LayersOverHead(layers)  # type: ignore[assignment]


_first = UncommittedChanges.first


async def _first_over_head(
    self: UncommittedChanges, name: BranchName, branch: Branch, limit: int
) -> list[str]:
    return await _first(self, name, _without_compacted(branch), limit)


COMPACTION_GUARDS: Sequence[Guard] = (
    Guard(
        "compaction-compares",
        "6",
        "I1 I3 I4 I5",
        "a compaction publishes its listing over any other record",
        (
            Weakening(tarn_graveler.compaction.compacting, "after_lost_race", _reuse),
            Weakening(tarn_graveler.compaction.compacting, "finish_compaction", _over_any),
        ),
        runs=200,
    ),
    Guard(
        "compaction-seals",
        "6",
        "I1 I3 I4",
        "a compaction scans a token that takes writes",
        (Weakening(Compacting, "_begin", _no_seal),),
        runs=200,
    ),
    Guard(
        "compaction-keeps-seals",
        "6",
        "I1 I3 I4",
        "a compaction removes sealed tokens that are newer than its own",
        (Weakening(tarn_graveler.compaction.compacting, "finish_compaction", _drop_newer),),
        runs=200,
    ),
    Guard(
        "commit-builds-on-compacted",
        "6",
        "I1 I3 I4",
        "a commit builds on the commit beneath a compacted listing",
        (Weakening(Committing, "_list", _list_over_head),),
        runs=200,
    ),
    Guard(
        "taken-by-a-commit",
        "6",
        "I1 I3 I4",
        "a commit takes its tokens for committed although a compaction has folded them",
        (Weakening(tarn_graveler.branch.committing, "after_lost_race", _taken),),
        runs=200,
    ),
    Guard(
        "only-reset-clears-compacted",
        "6",
        "I1 I3 I4",
        "a commit or merge that meets a compaction clears the listing of that compaction",
        (
            Weakening(tarn_graveler.branch.committing, "after_lost_race", _on_any_compacted),
            Weakening(tarn_graveler.branch.head_moves, "after_lost_race", _on_any_compacted),
        ),
        runs=200,
    ),
    Guard(
        "seal-keeps-compacted",
        "6",
        "I1 I3 I4",
        "a seal clears the compacted listing",
        (Weakening(tarn_graveler.branch.handle, "seal", _seal_anew),),
        runs=200,
    ),
    Guard(
        "condition-reads-compacted",
        "6",
        "I1 I3 I6",
        "a conditional write reads the commit instead of the compacted listing",
        (Weakening(ConditionalStaging, "_newest", _newest_over_head),),
        runs=200,
    ),
    Guard(
        "delete-reads-compacted",
        "6",
        "I1 I3",
        "a delete reads the commit instead of the compacted listing",
        (Weakening(Staging, "__init__", _staging_over_head),),
        runs=200,
    ),
    Guard(
        "merge-judges-compacted",
        "7",
        "I1 I3 I4 I8",
        "a branch is clean although its compacted listing changes its commit",
        (Weakening(UncommittedChanges, "first", _first_over_head),),
        runs=200,
    ),
)
