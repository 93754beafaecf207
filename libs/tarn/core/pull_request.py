"""Pull requests: their record, its transitions, and which reviews meet a rule (docs/design/pull-requests.md).

    open ⇄ closed;  open or closed → merged

A merge that lands beside a closing wins: the record then says what the branch holds. `VOID` is the state of a number
whose creation was given up.

A review is of two commits, the heads of both branches, and of how often the branches had moved by then. Approvals are
judged for the two heads for which the merge is made; so an approval of a commit that the branch has left counts only if
the rule says so.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId, UserId
from tarn.core.review_rule import ReviewRule, StaleApprovals

__all__ = [
    "BODY_BYTES_MAX",
    "EVENTS_MAX",
    "MERGE_ID",
    "NO_PULLS",
    "OPEN_MAX",
    "PULL_REQUEST",
    "TEXT_BYTES_MAX",
    "EventKind",
    "Heads",
    "OpenPull",
    "PullBranch",
    "PullEvent",
    "PullIndex",
    "PullRequest",
    "PullState",
    "Review",
    "Verdict",
    "checked_text",
    "checked_title",
    "dismissed",
    "missing_for",
    "not_open",
    "pair_of",
    "parse_pull_id",
    "pull_not_found",
    "reviewed",
    "void_pull",
]

PULL_REQUEST: Final = "tarn.pull_request"
"""Name under which the metadata of a merge commit record the pull request."""
MERGE_ID: Final = "tarn.pull_request_merge"
"""Name under which they record the random id of its merge, by which a merge whose answer was lost is found."""

TITLE_BYTES_MAX: Final = 256
BODY_BYTES_MAX: Final = 16 * 1024
"""Greatest size of a description, and of the text of an event."""
EVENTS_MAX: Final = 1000
"""Events of one request after which only closing and merging it are possible."""
TEXT_BYTES_MAX: Final = 256 * 1024
"""Greatest size of the text of all events of one request."""
REVIEWERS_MAX: Final = 100
OPEN_MAX: Final = 1000
"""Open requests of a repository."""
NUMBER_MAX: Final = 1_000_000
"""Requests of a repository, whatever their states."""

_ID_CHARS_MAX: Final = len(str(NUMBER_MAX))
_LINE_BREAKS: Final = "\n\t"
_BIDI: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
"""Characters that make a text read in another order than it is stored, or break its lines unseen."""


class PullState(enum.StrEnum):
    """The state of a pull request."""

    OPEN = "open"
    CLOSED = "closed"
    MERGED = "merged"
    VOID = "void"
    """Its creation was given up; no caller sees it."""


class Verdict(enum.StrEnum):
    """What a review says."""

    APPROVE = "approve"
    REQUEST_CHANGES = "request-changes"


class EventKind(enum.StrEnum):
    """Something that happens to a pull request."""

    COMMENT = "comment"
    APPROVE = "approve"
    REQUEST_CHANGES = "request-changes"
    DISMISS = "dismiss"
    UPDATE = "update"
    CLOSE = "close"
    REOPEN = "reopen"
    MERGE = "merge"


@dataclass(frozen=True, slots=True)
class PullBranch:
    """One side of a pull request.

    Attributes:
        incarnation: the life of the branch; a later branch of the same name is another one.
        commit_id: its head when it was last seen.
    """

    branch_id: BranchId
    incarnation: bytes
    commit_id: CommitId
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of both branches, and the sequences of their reflogs: how often they have moved."""

    source: CommitId
    source_sequence: int
    destination: CommitId
    destination_sequence: int


@dataclass(frozen=True, slots=True)
class Review:
    """The latest review of one user.

    Attributes:
        heads: what was reviewed.
        dismissed_by: who dismissed it; empty: it is not dismissed.
    """

    user_id: UserId
    user_uid: bytes
    verdict: Verdict
    heads: Heads
    time_us: int
    dismissed_by: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def covers(self, heads: Heads, rule: ReviewRule) -> bool:
        """Whether it counts for the present heads of the branches."""
        now, then = (
            (heads.source, heads.source_sequence),
            (
                self.heads.source,
                self.heads.source_sequence,
            ),
        )
        is_fresh = _is_fresh(now, then, rule.stale)
        if not rule.covers_destination:
            return is_fresh
        now = heads.destination, heads.destination_sequence
        then = self.heads.destination, self.heads.destination_sequence
        return is_fresh and _is_fresh(now, then, rule.stale)


def _is_fresh(now: tuple[CommitId, int], then: tuple[CommitId, int], stale: StaleApprovals) -> bool:
    match stale:
        case StaleApprovals.KEEP:
            return True
        case StaleApprovals.IGNORE:
            return now[0] == then[0]
        case StaleApprovals.DISMISS:
            return now == then


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The record of a pull request.

    Attributes:
        number: from 1, in the repository.
        author_uid: the life of its author.
        end_time_us: when it was closed or merged; 0 while it is open.
        create_id: 16 random bytes, unique to its creation.
        change_id: 16 random bytes, unique to the change that made this version.
        reviews: one for each reviewer, in the order of their first reviews.
        event_count: events so far, also of those that were never written.
        text_bytes: size of the text of all events.
        merge_id: 16 random bytes, of its merge; empty before the first attempt. Invariant: it never changes, so all
            attempts have the same.
        merge_from: the destination's head before the first attempt; empty before.
        merge_commit: empty unless it is merged.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    number: int
    state: PullState
    author_id: UserId
    author_uid: bytes
    source: PullBranch
    destination: PullBranch
    title: str
    description: str
    create_time_us: int
    update_time_us: int
    create_id: bytes
    end_time_us: int = 0
    change_id: bytes = b""
    reviews: tuple[Review, ...] = ()
    event_count: int = 0
    text_bytes: int = 0
    merge_id: bytes = b""
    merge_from: CommitId | None = None
    merge_commit: CommitId | None = None
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def pull_id(self) -> str:
        """Its id for clients."""
        return str(self.number)

    @property
    def pair(self) -> bytes:
        """The digest of its branches' names."""
        return pair_of(self.source.branch_id, self.destination.branch_id)


@dataclass(frozen=True, slots=True)
class PullEvent:
    """Something that happened to a pull request.

    Attributes:
        path: the object, or the folder with a `/` at its end, that a comment is about; empty for the request.
        source, destination: the heads at that time; empty for an event that is about no commit. Of a merge,
            `destination` is the merge commit.
    """

    kind: EventKind
    user_id: UserId
    time_us: int
    body: str = ""
    path: str = ""
    source: str = ""
    destination: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class OpenPull:
    """A request that is open, or about to be opened or closed; its record decides.

    Attributes:
        open_id: 16 random bytes, unique to what opened it.
    """

    number: int
    pair: bytes
    open_id: bytes
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class PullIndex:
    """The numbers and the open requests of a repository.

    Attributes:
        open: in the order in which they were opened. Invariant: no two have the same pair.
    """

    last_number: int = 0
    open: tuple[OpenPull, ...] = ()
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def of_pair(self, pair: bytes) -> OpenPull | None:
        """Returns the request that occupies a pair of branches."""
        return next((each for each in self.open if each.pair == pair), None)

    def with_open(self, pull: OpenPull) -> PullIndex:
        """Adds an open request.

        Raises:
            TarnError: EXHAUSTED, QUOTA_EXCEEDED.
        """
        if len(self.open) >= OPEN_MAX or pull.number > NUMBER_MAX:
            text = (
                f"a repository has at most {OPEN_MAX} open pull requests, and {NUMBER_MAX} in all; close some of "
                "those that are open"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED, text)
        return replace(
            self, last_number=max(self.last_number, pull.number), open=(*self.open, pull)
        )

    def without(self, open_ids: Iterable[bytes]) -> PullIndex:
        """Removes requests."""
        gone = set(open_ids)
        return replace(self, open=tuple(each for each in self.open if each.open_id not in gone))


NO_PULLS: Final = PullIndex()
"""The index of a repository that never had a pull request."""


def void_pull(entry: OpenPull) -> PullRequest:
    """Returns the record of a request whose creation was given up: its number is not used again."""
    nothing = PullBranch(BranchId(""), b"", CommitId(""))
    return PullRequest(
        number=entry.number,
        state=PullState.VOID,
        author_id=UserId(""),
        author_uid=b"",
        source=nothing,
        destination=nothing,
        title="",
        description="",
        create_time_us=0,
        update_time_us=0,
        create_id=entry.open_id,
    )


def pair_of(source: BranchId, destination: BranchId) -> bytes:
    """Returns a digest of the names of two branches, which hold no NUL."""
    return hashlib.sha256(f"{source}\0{destination}".encode()).digest()[:16]


def parse_pull_id(value: str) -> int:
    """Parses the id of a pull request: its number in decimal.

    Raises:
        TarnError: PULL_REQUEST_NOT_FOUND: no request can have this id.
    """
    is_number = value.isascii() and value.isdigit() and len(value) <= _ID_CHARS_MAX
    if not is_number or value.startswith("0"):
        raise pull_not_found(value)
    return int(value)


def pull_not_found(pull_id: str) -> TarnError:
    """Returns the error for a pull request that does not exist."""
    text = f"pull request {pull_id[:32]!r} does not exist; `tarn pr list` shows those that do"
    return TarnError(Kind.NOT_FOUND, Reason.PULL_REQUEST_NOT_FOUND, text, pull_request=pull_id[:32])


def not_open(pull: PullRequest) -> TarnError:
    """Returns the error for a change that only an open request takes."""
    remedy = "open it again first" if pull.state is PullState.CLOSED else "open a new one"
    text = f"pull request {pull.pull_id} is {pull.state}; {remedy}"
    return TarnError(
        Kind.FAILED_PRECONDITION,
        Reason.PULL_REQUEST_NOT_OPEN,
        text,
        pull_request=pull.pull_id,
        state=pull.state.value,
    )


def checked_title(title: str) -> str:
    """Returns a title after checking it: one line of 1 to 256 bytes.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    _check_characters("title", title, "")
    if not title.strip() or len(title.encode()) > TITLE_BYTES_MAX:
        text = f"the title of a pull request is one line of 1 to {TITLE_BYTES_MAX} bytes"
        raise _invalid(text, "title")
    return title


def checked_text(name: str, text: str) -> str:
    """Returns a description, or the text of an event, with line feeds as its line breaks.

    Raises:
        TarnError: INVALID_ARGUMENT: it is too long, or holds control characters.
    """
    plain = text.replace("\r\n", "\n")
    _check_characters(name, plain, _LINE_BREAKS)
    if len(plain.encode()) > BODY_BYTES_MAX:
        raise _invalid(f"{name} has more than {BODY_BYTES_MAX} bytes", name)
    return plain


def _check_characters(name: str, text: str, allowed: str) -> None:
    for character in text:
        code = ord(character)
        is_control = code < 0x20 or 0x7F <= code < 0xA0 or character in _BIDI
        if is_control and character not in allowed:
            shown = f"{name} holds the control character U+{code:04X}; remove it"
            raise _invalid(shown, name)


def reviewed(pull: PullRequest, review: Review) -> PullRequest:
    """Adds a review, in place of an earlier one of the same user.

    Raises:
        TarnError: PULL_REQUEST_NOT_OPEN; QUOTA_EXCEEDED: too many users have reviewed it.
    """
    if pull.state is not PullState.OPEN:
        raise not_open(pull)
    others = [each.user_uid for each in pull.reviews]
    if review.user_uid in others:
        reviews = tuple(
            review if each.user_uid == review.user_uid else each for each in pull.reviews
        )
    elif len(pull.reviews) < REVIEWERS_MAX:
        reviews = (*pull.reviews, review)
    else:
        text = f"{REVIEWERS_MAX} users have reviewed pull request {pull.pull_id} already; comment on it instead"
        raise TarnError(Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED, text)
    return replace(pull, reviews=reviews)


def dismissed(pull: PullRequest, reviewer: str, by: str) -> PullRequest:
    """Dismisses the reviews of a name: of each life of the user.

    Raises:
        TarnError: PULL_REQUEST_NOT_OPEN; USER_NOT_FOUND: there is none.
    """
    if pull.state is not PullState.OPEN:
        raise not_open(pull)
    if all(each.user_id != reviewer for each in pull.reviews):
        text = f"user {reviewer[:64]!r} has not reviewed pull request {pull.pull_id}"
        raise TarnError(Kind.NOT_FOUND, Reason.USER_NOT_FOUND, text, user_id=reviewer[:64])
    reviews = tuple(
        replace(each, dismissed_by=each.dismissed_by or by) if each.user_id == reviewer else each
        for each in pull.reviews
    )
    return replace(pull, reviews=reviews)


def missing_for(
    pull: PullRequest, rule: ReviewRule, heads: Heads, changed_prefixes: Iterable[str]
) -> list[str]:
    """Returns what a merge for these heads still needs by a rule, a sentence each; empty: nothing.

    Args:
        pull: the request.
        rule: the rule.
        heads: the heads for which the merge is made.
        changed_prefixes: the prefixes of the owners of `rule` below which the merge changes something.
    """
    missing = [
        f"{each.user_id} requests changes, and has neither approved since nor been dismissed"
        for each in pull.reviews
        if each.verdict is Verdict.REQUEST_CHANGES and not each.dismissed_by
    ]
    approvals = [
        each
        for each in pull.reviews
        if each.verdict is Verdict.APPROVE
        and not each.dismissed_by
        and (rule.author_counts or each.user_uid != pull.author_uid)
        and each.covers(heads, rule)
    ]
    wanted = rule.approval_count - len(approvals)
    if wanted > 0:
        noun = "approval" if wanted == 1 else "approvals"
        whose = "" if rule.author_counts else " by others than its author"
        missing.append(f"it needs {wanted} more {noun}{whose} of commit {heads.source[:12]}")
    uids = {each.user_uid for each in approvals}
    changed = set(changed_prefixes)
    for owner in rule.owners:
        if owner.prefix in changed and uids.isdisjoint(each.user_uid for each in owner.owners):
            names = ", ".join(each.user_id for each in owner.owners)
            missing.append(f"changes below {owner.prefix!r} need the approval of {names}")
    return missing


def _invalid(text: str, name: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=name)
