"""The branch record and every decision about it (docs/design/protocol.md, "The numbered rules").

The whole state of a branch is one record, which changes only by compare-and-set on the whole record. The functions here
compute the next record; the services read, write and retry. `tests/models/branch_model.py` is an executable model of
these decisions; change a rule there first. `unknown_fields`: see `tarn.kv.unknown_fields`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from tarn.core.branch_expiry import BranchExpiry
from tarn.core.branch_parts import Pin, Token, TokenKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import CommitId, MetarangeId, TokenId

__all__ = [
    "AfterLostRace",
    "Branch",
    "Pin",
    "Settled",
    "Token",
    "TokenKind",
    "after_lost_race",
    "begin_compaction",
    "discard_changes",
    "end_compaction",
    "publish_commit",
    "finish_compaction",
    "forget_sealed",
    "move_head",
    "pin_listing",
    "removed_tokens",
    "reset_part",
    "seal",
    "set_expiry",
    "settle",
    "touch",
    "with_oldest_of",
]

RECENT_OPS = 8
"""How many operation ids a record remembers; an unknown outcome is settled from these eight."""
PINS_MAX = 8
"""Most pins of a record: the number of operations that can build compacted listings of one branch at once."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch as one record.

    Attributes:
        incarnation: identifies this life of the branch; a later branch of the same name has another.
        staging: the token that takes writes.
        sealed: tokens that take no writes and are not committed yet. Invariant: newest first.
        commit_id: the newest commit.
        compacted_metarange_id: the listing on which reads and commits build instead of the commit's (rule 6).
        compaction_start_time_us: when the running compaction began; 0 if none runs. Only saves work.
        compaction_end_time_us: when a compaction last ended; 0: never.
        recent_op_ids: operations that changed this record. Invariant: newest first, at most eight.
        is_deleted: the repository is being deleted; the branch is treated as absent.
        reset_count: resets of this branch so far (rule 10). A commit whose tokens are gone compares it: another commit
            keeps the rows that it takes, a reset discards them.
        move_time_us: when an operation last changed the content beneath the staging token without staged rows
            (rule 9); the creation of the branch is the first one. 0: none did, on a branch that an earlier release
            made. Invariant: each such operation increases it, over all branches of one name.
        outbox: entries of the reflog whose rows may not be written yet, oldest first.
        head_sequence: the sequence of the newest entry of the reflog; 0 if the branch is older than its reflog.
        head_time_us: the time of that entry; 0 likewise.
        pins: listings that operations are about to publish, newest first. The pin of a failed operation stays until
            another operation publishes.
        expiry: when the branch expires; None: never.
    """

    incarnation: bytes
    staging: Token
    sealed: tuple[Token, ...]
    commit_id: CommitId
    create_time_us: int
    compacted_metarange_id: MetarangeId | None = None
    compaction_start_time_us: int = 0
    compaction_end_time_us: int = 0
    recent_op_ids: tuple[bytes, ...] = ()
    is_deleted: bool = False
    reset_count: int = 0
    move_time_us: int = 0
    outbox: tuple[HeadChange, ...] = ()
    head_sequence: int = 0
    head_time_us: int = 0
    pins: tuple[Pin, ...] = ()
    expiry: BranchExpiry | None = None
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The uncommitted layers, newest first."""
        return (self.staging, *self.sealed)

    @property
    def was_moved(self) -> bool:
        """Whether the content beneath the staging token may have changed without staged rows since the creation."""
        return self.move_time_us not in (0, self.create_time_us)

    def names(self, token_id: TokenId) -> bool:
        """Whether a token is one of the uncommitted layers."""
        return any(token.token_id == token_id for token in self.tokens)

    def same_layers(self, other: Branch) -> bool:
        """Whether readers of both records read exactly the same data (rules 2 and 3)."""
        return self is other or (
            self.incarnation == other.incarnation
            and self.staging == other.staging
            and self.sealed == other.sealed
            and self.commit_id == other.commit_id
            and self.compacted_metarange_id == other.compacted_metarange_id
            and self.is_deleted == other.is_deleted
        )

    def takes_writes_as(self, other: Branch) -> bool:
        """Whether this record still includes a row that is written to `other`'s staging token (rule 1)."""
        is_same = self is other or (
            self.incarnation == other.incarnation and self.staging == other.staging
        )
        return is_same and not self.is_deleted


def _remember(branch: Branch, op_id: bytes) -> tuple[bytes, ...]:
    return (op_id, *branch.recent_op_ids)[:RECENT_OPS]


def _newer(built_from: Branch, current: Branch) -> tuple[Token, ...]:
    """The sealed tokens that came after those of `built_from`."""
    newer = current.sealed[: len(current.sealed) - len(built_from.sealed)]
    assert current.sealed[len(newer) :] == built_from.sealed, "our tokens must be the oldest ones"
    return newer


def _checked(branch: Branch) -> Branch:
    """Checks that the record names each token only once, and returns it.

    A commit would drop a token that is both staging and sealed, while it takes writes.

    Raises:
        TarnError: CORRUPT: the record names a token twice.
    """
    ids = [token.token_id for token in branch.tokens]
    if len(set(ids)) != len(ids):
        text = f"a branch record would name a token twice: {', '.join(ids)}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    return branch


def seal(branch: Branch, token: Token, op_id: bytes) -> Branch:
    """Directs writes to `token`; the rows staged so far wait to be committed (rule 4).

    Args:
        branch: the current record.
        token: a new one for each attempt. An earlier attempt may wait in a queue and be applied later; if it
            had the same token, the token would be sealed beneath itself.
        op_id: also new for each attempt.

    Raises:
        TarnError: CORRUPT: the record already names the token.
    """
    after = replace(
        branch,
        staging=token,
        sealed=(branch.staging, *branch.sealed),
        recent_op_ids=_remember(branch, op_id),
    )
    return _checked(after)


def publish_commit(
    built_from: Branch, current: Branch, commit_id: CommitId, op_id: bytes
) -> Branch:
    """The record after a commit of all of `built_from`'s sealed tokens.

    `current` equals `built_from`, or differs from it only by newer seals (`after_lost_race`).
    """
    kept = _newer(built_from, current)
    return replace(
        current,
        sealed=kept,
        commit_id=commit_id,
        compacted_metarange_id=None,
        compaction_start_time_us=0,
        pins=(),
        recent_op_ids=_remember(current, op_id),
    )


def move_head(
    built_from: Branch,
    current: Branch,
    commit_id: CommitId,
    token: Token,
    op_id: bytes,
    *,
    now_us: int,
    is_reset: bool = False,
) -> Branch:
    """The record after a merge, revert or cherry-pick, whose commit is not built from staged rows (rule 9).

    The staging token is replaced in the same step, because the content beneath it changes. It stays in the
    record as a sealed token: rows may have been acknowledged in it since `built_from` was sealed.

    Args:
        built_from: the record whose sealed tokens were found to change nothing; these are removed.
        current: equals `built_from`, or differs from it only by newer seals (`after_lost_race`).
        commit_id: the new head.
        token: a new one for each attempt.
        op_id: also new for each attempt.
        now_us: the time of the caller.
        is_reset: the new head does not descend from the old one (rule 10).
    """
    newer = _newer(built_from, current)
    after = replace(
        current,
        staging=token,
        sealed=(current.staging, *newer),
        commit_id=commit_id,
        compacted_metarange_id=None,
        compaction_start_time_us=0,
        pins=(),
        recent_op_ids=_remember(current, op_id),
        reset_count=current.reset_count + is_reset,
        move_time_us=max(now_us, current.move_time_us + 1),
    )
    return _checked(after)


def discard_changes(
    branch: Branch, commit_id: CommitId, token: Token, op_id: bytes, *, now_us: int
) -> Branch:
    """The record after a reset of all uncommitted changes, to the head or to another commit (rule 10)."""
    after = replace(
        branch,
        staging=token,
        sealed=(),
        commit_id=commit_id,
        compacted_metarange_id=None,
        compaction_start_time_us=0,
        pins=(),
        recent_op_ids=_remember(branch, op_id),
        reset_count=branch.reset_count + 1,
        move_time_us=max(now_us, branch.move_time_us + 1),
    )
    return _checked(after)


def reset_part(
    built_from: Branch,
    current: Branch,
    compacted: Pin | None,
    token: Token,
    op_id: bytes,
    *,
    now_us: int,
) -> Branch:
    """The record after a reset of a prefix or of one object (rules 6, 9 and 10).

    As in `move_head`, the replaced staging token stays as a sealed one. It may hold rows of the part; they were
    acknowledged after the seal.

    Args:
        built_from: the record whose sealed tokens were folded; these are removed.
        current: equals `built_from`, or differs from it only by newer seals (`after_lost_race`).
        compacted: the listing of all that remains uncommitted of `built_from`, over its commit, pinned in `current`;
            None if nothing remains.
        token: a new one for each attempt.
        op_id: also new for each attempt.
        now_us: the time of the caller.
    """
    newer = _newer(built_from, current)
    after = replace(
        current,
        staging=token,
        sealed=(current.staging, *newer),
        compacted_metarange_id=_pinned(current, compacted),
        compaction_start_time_us=0,
        pins=(),
        recent_op_ids=_remember(current, op_id),
        reset_count=current.reset_count + 1,
        move_time_us=max(now_us, current.move_time_us + 1),
    )
    return _checked(after)


def pin_listing(branch: Branch, pin: Pin, op_id: bytes) -> Branch:
    """The record with a pin: its listing is a root of collections from now on (rule 13)."""
    pins = (pin, *branch.pins)[:PINS_MAX]
    return replace(branch, pins=pins, recent_op_ids=_remember(branch, op_id))


def _pinned(branch: Branch, pin: Pin | None) -> MetarangeId | None:
    assert pin is None or pin in branch.pins, "only a pinned listing may be published"
    return None if pin is None else pin.metarange_id


def with_oldest_of(built_from: Branch, current: Branch) -> Branch:
    """The current record, with only those of its sealed tokens that `built_from` also has.

    They are the oldest ones. Newer tokens hold only rows that were acknowledged after `built_from` was sealed.
    """
    ours = tuple(token for token in built_from.sealed if current.names(token.token_id))
    return replace(current, sealed=ours)


def begin_compaction(branch: Branch, token: Token | None, op_id: bytes, *, now_us: int) -> Branch:
    """The record while a compaction runs (rule 6); sealed in the same step if `token` is not None.

    Args:
        branch: the current record.
        token: the new staging token, as in `seal`; None: only the sealed tokens are compacted.
        op_id: a new one for each attempt.
        now_us: the time of the caller.

    Raises:
        TarnError: CORRUPT: the record already names the token.
    """
    begun = replace(branch, compaction_start_time_us=now_us)
    if token is not None:
        return seal(begun, token, op_id)
    return replace(begun, recent_op_ids=_remember(branch, op_id))


def end_compaction(begun: Branch, current: Branch, op_id: bytes) -> Branch:
    """The record without the mark of a compaction that has failed; the current record itself if it has another mark.

    Args:
        begun: the record with the mark.
        current: the current record.
        op_id: a new one for each attempt.
    """
    since_us = begun.compaction_start_time_us
    if current.incarnation != begun.incarnation or current.compaction_start_time_us != since_us:
        return current
    return replace(current, compaction_start_time_us=0, recent_op_ids=_remember(current, op_id))


def finish_compaction(
    built_from: Branch,
    current: Branch,
    compacted: Pin | None,
    op_id: bytes,
    *,
    now_us: int,
) -> Branch:
    """The record after a compaction of all of `built_from`'s sealed tokens (rule 6).

    The staging token stays, as in a commit: the content beneath it is the same as before (rule 9).

    Args:
        built_from: the record whose sealed tokens were folded; these are removed.
        current: equals `built_from`, or differs from it only by newer seals (`after_lost_race`).
        compacted: the listing of those tokens over their base, pinned in `current`; None if it is the commit's.
        op_id: a new one for each attempt.
        now_us: the time of the caller.
    """
    kept = _newer(built_from, current)
    return replace(
        current,
        sealed=kept,
        compacted_metarange_id=_pinned(current, compacted),
        compaction_start_time_us=0,
        pins=(),
        compaction_end_time_us=now_us,
        recent_op_ids=_remember(current, op_id),
    )


def forget_sealed(built_from: Branch, current: Branch, op_id: bytes) -> Branch:
    """The record without `built_from`'s sealed tokens, after these over its base were found to equal its commit.

    A compacted metarange goes with them: without them it may differ from the commit. So no listing changes.
    """
    kept = _newer(built_from, current)
    return replace(
        current,
        sealed=kept,
        compacted_metarange_id=None,
        compaction_start_time_us=0,
        pins=(),
        recent_op_ids=_remember(current, op_id),
    )


def set_expiry(branch: Branch, expiry: BranchExpiry | None, op_id: bytes) -> Branch:
    """The record with another end, or without one; the record itself if it has this one."""
    if branch.expiry == expiry:
        return branch
    return replace(branch, expiry=expiry, recent_op_ids=_remember(branch, op_id))


def touch(branch: Branch, op_id: bytes) -> Branch:
    """The record with a new operation id and no other change: changes that expect the present record will fail."""
    return replace(branch, recent_op_ids=_remember(branch, op_id))


class AfterLostRace(enum.Enum):
    """The next step of a commit whose final compare-and-set has found another record."""

    REUSE = "reuse"
    """Only newer seals were added: the metarange is still right; repeat the write on the new record."""
    RECOMPUTE = "recompute"
    """Build the metarange again from the new record."""
    TAKEN = "taken"
    """Another commit has taken all of our tokens; it contains everything that we had to commit."""
    RESET = "reset"
    """A reset has discarded rows of our tokens. None of these tokens is left, and no compacted metarange: no commit
    need contain their rows."""


def after_lost_race(built_from: Branch, current: Branch, pin: Pin | None = None) -> AfterLostRace:
    """Decides by comparing the record that a commit was built from with the current record.

    A compacted listing is reused only while its pin is in the record: an unpinned one may be deleted.
    Because of REUSE, commits are lock-free: only a finished commit can make another commit build again.
    The "overlapping sealed tokens" rule of the KV proposal (docs/design/departures.md) is deliberately absent:
    once tokens are dropped, it loses acknowledged writes (guard `no overlap rule` of the model).
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
    if current.reset_count != built_from.reset_count:
        # The rows of ours that a reset left are still to be committed: those that the reset of a part has folded, and
        # those of tokens that were sealed after the ones that it took.
        is_left = current.compacted_metarange_id is not None or set(ours) & set(current.sealed)
        return AfterLostRace.RECOMPUTE if is_left else AfterLostRace.RESET
    if same_base and tail == ours and (pin is None or pin in current.pins):
        return AfterLostRace.REUSE
    is_gone = current.commit_id != built_from.commit_id and not set(ours) & set(current.sealed)
    # Over a newer commit, a compaction may have folded our tokens: then no commit holds their rows yet.
    if is_gone and current.compacted_metarange_id is None:
        return AfterLostRace.TAKEN
    return AfterLostRace.RECOMPUTE


def removed_tokens(before: Branch, after: Branch) -> tuple[Token, ...]:
    """The tokens that a change removed from the record; exactly these may be dropped (rule 5)."""
    kept = set(after.tokens)
    return tuple(token for token in before.tokens if token not in kept)


class Settled(enum.Enum):
    """The outcome of a compare-and-set whose answer was lost, as far as it is known (rule 8)."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    """It was not applied and never will be: the record has changed, so its predicate fails."""
    PENDING = "pending"
    """It was not applied, but its request may wait in a queue: the record is still the one it expects."""
    UNDECIDABLE = "undecidable"
    """Unknown: too many operations have changed the record since."""


def settle(base: Branch, op_id: bytes, current: Branch | None) -> Settled:
    """Decides from a settling read of the record whether operation `op_id` on `base` was applied.

    The record remembers the last eight operations. If the operation that made `base` is still among them, or the record
    has not forgotten any yet, the absence of `op_id` proves that it was not applied. It may still be applied later if
    the record is still `base`: no read can void a request that has reached no replica yet; another change can.
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
