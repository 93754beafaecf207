"""The branch record and every decision about it (docs/design/protocol.md, "The numbered rules").

Everything that a branch is, is in one record that changes only by compare-and-set on the whole of it.
The functions here say what the next record looks like; the services read, write and retry. The rules
that these decisions keep are executable in `tests/models/branch_model.py`: a change here is made there first.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId, TokenId

__all__ = [
    "AfterLostFinish",
    "Branch",
    "Settled",
    "Token",
    "TokenKind",
    "after_lost_finish",
    "finish_commit",
    "forget_sealed",
    "removed_tokens",
    "seal",
    "settle",
]

RECENT_OPS = 8
"""How many operation ids a record remembers; an unknown outcome is settled among the last eight."""


class TokenKind(enum.Enum):
    """How the rows of a staging token are written."""

    PLAIN = "plain"
    CONDITIONAL = "conditional"


@dataclass(frozen=True, slots=True)
class Token:
    """A partition that takes, or took, a branch's writes. Its id is never reused."""

    token_id: TokenId
    kind: TokenKind
    buckets: int
    create_time_us: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as one record.

    Attributes:
        incarnation: names this life of the branch; a re-created namesake has another.
        staging: takes the writes.
        sealed: take none and are not committed yet. Invariant: newest first.
        commit_id: the newest commit.
        compacted_metarange_id: what reads and commits build on instead of the commit's (rule 6).
        recent_op_ids: operations that changed this record. Invariant: newest first, at most eight.
        is_deleted: its repository is being deleted; treated as absent.
    """

    incarnation: bytes
    staging: Token
    sealed: tuple[Token, ...]
    commit_id: CommitId
    create_time_us: int
    compacted_metarange_id: MetarangeId | None = None
    compaction_start_time_us: int = 0
    recent_op_ids: tuple[bytes, ...] = ()
    is_deleted: bool = False

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The uncommitted layers, newest first."""
        return (self.staging, *self.sealed)

    def names(self, token_id: TokenId) -> bool:
        """Whether a token is one of the uncommitted layers."""
        return any(token.token_id == token_id for token in self.tokens)

    def same_layers(self, other: Branch) -> bool:
        """Whether a reader of one reads exactly what a reader of the other does (rules 2 and 3)."""
        return self is other or (
            self.incarnation == other.incarnation
            and self.staging == other.staging
            and self.sealed == other.sealed
            and self.commit_id == other.commit_id
            and self.compacted_metarange_id == other.compacted_metarange_id
            and self.is_deleted == other.is_deleted
        )

    def takes_writes_as(self, other: Branch) -> bool:
        """Whether a row written to `other`'s staging token is in this record's (rule 1)."""
        return (
            self.incarnation == other.incarnation
            and self.staging == other.staging
            and not self.is_deleted
        )


def _remember(branch: Branch, op_id: bytes) -> tuple[bytes, ...]:
    return (op_id, *branch.recent_op_ids)[:RECENT_OPS]


def _checked(branch: Branch) -> Branch:
    """The record, which names each token once.

    A token that is staging and sealed at once would be dropped by a commit while it takes writes.

    Raises:
        TarnError: CORRUPT.
    """
    ids = [token.token_id for token in branch.tokens]
    if len(set(ids)) != len(ids):
        text = f"a branch record would name a token twice: {', '.join(ids)}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return branch


def seal(branch: Branch, token: Token, op_id: bytes) -> Branch:
    """Writes go to `token` from now on; what was staged waits to be committed (rule 4).

    Args:
        branch: the current record.
        token: new in each attempt. An earlier attempt may wait in a queue and be applied later; the same
            token would then be sealed beneath itself.
        op_id: new in each attempt, too.

    Raises:
        TarnError: CORRUPT if the record names the token already.
    """
    after = replace(
        branch,
        staging=token,
        sealed=(branch.staging, *branch.sealed),
        recent_op_ids=_remember(branch, op_id),
    )
    return _checked(after)


def finish_commit(built_from: Branch, current: Branch, commit_id: CommitId, op_id: bytes) -> Branch:
    """The record after a commit of all of `built_from`'s sealed tokens.

    `current` is `built_from`, or differs from it by newer seals only (`after_lost_finish`).
    """
    ours = len(built_from.sealed)
    kept = current.sealed[: len(current.sealed) - ours]
    assert current.sealed[len(kept) :] == built_from.sealed, "our tokens are the oldest ones"
    return replace(
        current,
        sealed=kept,
        commit_id=commit_id,
        compacted_metarange_id=None,
        compaction_start_time_us=0,
        recent_op_ids=_remember(current, op_id),
    )


def forget_sealed(built_from: Branch, current: Branch, op_id: bytes) -> Branch:
    """The record after finding that `built_from`'s sealed tokens change nothing: without them.

    Base and commit stay, so every listing is what it was.
    """
    ours = len(built_from.sealed)
    kept = current.sealed[: len(current.sealed) - ours]
    assert current.sealed[len(kept) :] == built_from.sealed, "our tokens are the oldest ones"
    return replace(current, sealed=kept, recent_op_ids=_remember(current, op_id))


class AfterLostFinish(enum.Enum):
    """What a commit does whose last compare-and-set met another record."""

    REUSE = "reuse"
    """Only newer seals came: the metarange is still right, try again on the new record."""
    RECOMPUTE = "recompute"
    """Build again from the new record."""
    TAKEN = "taken"
    """Another commit took all of our tokens; everything that we had to commit is in it."""


def after_lost_finish(built_from: Branch, current: Branch) -> AfterLostFinish:
    """Decides by comparing the record that a commit was built from with the one that is there now.

    REUSE is what keeps commits lock-free: only a finished commit can send another one back to work.
    The "overlapping sealed tokens" rule of the KV proposal (docs/design/departures.md) is not here: once
    tokens are dropped it loses acknowledged writes (guard `no overlap rule` of the model).
    """
    ours = built_from.sealed
    tail = (
        current.sealed[len(current.sealed) - len(ours) :]
        if len(ours) <= len(current.sealed)
        else ()
    )
    same_base = (
        current.incarnation == built_from.incarnation
        and current.commit_id == built_from.commit_id
        and current.compacted_metarange_id == built_from.compacted_metarange_id
    )
    if same_base and tail == ours:
        return AfterLostFinish.REUSE
    if current.commit_id != built_from.commit_id and not set(ours) & set(current.sealed):
        return AfterLostFinish.TAKEN
    return AfterLostFinish.RECOMPUTE


def removed_tokens(before: Branch, after: Branch) -> tuple[Token, ...]:
    """The tokens that a change took out of the record: exactly these may be dropped (rule 5)."""
    kept = set(after.tokens)
    return tuple(token for token in before.tokens if token not in kept)


class Settled(enum.Enum):
    """What is known of a compare-and-set whose answer was lost (rule 8)."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    """It was not applied and never will be: the record has changed, so its predicate fails."""
    PENDING = "pending"
    """It was not applied, but the request may wait in a queue: the record is still the one it expects."""
    UNDECIDABLE = "undecidable"
    """Too many changes since: the record has forgotten."""


def settle(base: Branch, op_id: bytes, current: Branch | None) -> Settled:
    """Decides from a settling read of the record what became of operation `op_id` on `base`.

    The record remembers the last eight operations; if the one that made `base` is still among them,
    or the record has forgotten none yet, the absence of `op_id` proves that it was not applied. It may
    still be applied later if the record is `base` itself: no read can void a request that no replica
    has seen yet. Only another change of the record does.
    """
    if current is None or current.incarnation != base.incarnation:
        return Settled.UNDECIDABLE
    if op_id in current.recent_op_ids:
        return Settled.APPLIED
    if current == base:
        return Settled.PENDING
    if base.recent_op_ids and base.recent_op_ids[0] in current.recent_op_ids:
        return Settled.NOT_APPLIED
    if len(current.recent_op_ids) < RECENT_OPS:
        return Settled.NOT_APPLIED
    return Settled.UNDECIDABLE
