"""The history of a run: the operations of clients and their answers, on one clock.

One line per operation on one key: `{proc, op, branch, key, value, inv, ret, outcome}`. The clock counts
events, so no two have the same time. `fail` means that the operation had no effect. `info` means that the
outcome is unknown: the answer was lost, the replica died, or the client hung up. An `info` operation
never ends: its effect may come at any time. `tests.support.check.checker` decides whether the promises
were kept (docs/design/simulation.md, "Invariants").
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = [
    "ABSENT",
    "GONE",
    "MERGES",
    "NEVER",
    "Commit",
    "History",
    "Op",
    "OpKind",
    "Outcome",
    "shown",
]

ABSENT = 0
"""The value of a path without an entry."""
GONE = -1
"""The value of every path of a branch that does not exist."""
NEVER = math.inf
"""End time of an operation whose end was not observed."""


class OpKind(enum.StrEnum):
    """The kind of an operation."""

    PUT = "put"
    DELETE = "delete"
    GET = "get"
    LIST = "list"
    """One key of one page of a listing."""
    COMMIT = "commit"
    CREATE = "create"
    """Creates a branch at a commit: writes every key in one step."""
    REMOVE = "remove"
    """Removes a branch: writes `GONE` to every key in one step."""
    MERGE = "merge"
    REVERT = "revert"
    PICK = "pick"
    """A cherry-pick."""
    RESET = "reset"
    """Discards uncommitted changes: all, or those of a part."""
    MOVE = "move"
    """A hard move of a branch to another commit."""
    COMPACT = "compact"
    """A compaction: writes nothing, but seals the staging token."""
    HEAD = "head"
    """A read of the head of a branch."""


MERGES = frozenset({OpKind.MERGE, OpKind.REVERT, OpKind.PICK})
"""Operations that make a commit by a three-way merge of commits."""


class Outcome(enum.StrEnum):
    """The outcome of an operation, as its client sees it."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True)
class Op:
    """One operation.

    Attributes:
        key: None for an operation on all keys of the branch (commit, create, remove).
        value: written or read value; may be `ABSENT` or `GONE`. None if there is no single value.
        inv: time of the request.
        ret: time of the answer; `NEVER` unless the outcome is `ok`.
        commit_id: the commit that a commit returned, or that a branch was created at.
        is_claim: whether a commit answered "nothing to commit: everything is in `commit_id`".
        expected: value that the key of a conditional put or delete must hold immediately before.
        observed: value that a refused conditional put or delete found instead.
        calls: number of requests of the operation, each of which may write (completions of one upload).
        is_upload: whether a put is the completion of an upload, whose object is staged once.
        is_stepwise: whether the branch is created or removed with its repository, so that before the
            answer only some replicas may know it.
        source_id: the commit that is merged, reverted or picked; empty for the head of `source_branch`.
        source_branch: the branch whose head is merged.
        parent_number: the parent with which a reverted or picked commit is compared; 0 for the only one.
        choice: the side that wins conflicts, `source` or `dest`; empty if conflicts refuse the operation.
        is_squash: whether the merge commit has one parent only.
        expected_id: the head that a hard move expects.
        is_forced: whether a hard move discards uncommitted changes.
        part: the prefix or path whose changes a reset discards; empty for all changes.
        is_prefix: whether `part` is a prefix.
        is_unchanged: whether uncommitted differences left the key out: it has no value of its own.
        below: paths below the common prefix that a page shows, of which one at least was there.
        allows_empty: whether a commit or merge is made even if it changes nothing.
        is_restore: whether a branch is created by undoing its deletion.
        reason: why it was refused: a `Reason`, or a code of S3; empty without an answer. One may come with the outcome
            `info`: the answer says that the outcome is unknown.
        told_id: the head that a refusal names.
        grounds: reasons that the recorder knows to be right, because the history does not show it: the age of an
            address, an upload that was aborted.
    """

    number: int
    proc: str
    kind: OpKind
    branch: str
    key: str | None
    value: int | None
    inv: float
    ret: float = NEVER
    end: float = NEVER
    outcome: Outcome = Outcome.INFO
    commit_id: str = ""
    is_claim: bool = False
    expected: int | None = None
    observed: int | None = None
    calls: int = 1
    is_upload: bool = False
    is_stepwise: bool = False
    source_id: str = ""
    source_branch: str = ""
    parent_number: int = 0
    choice: str = ""
    is_squash: bool = False
    expected_id: str = ""
    is_forced: bool = False
    part: str = ""
    is_prefix: bool = False
    is_unchanged: bool = False
    below: tuple[str, ...] = ()
    allows_empty: bool = False
    is_restore: bool = False
    reason: str = ""
    told_id: str = ""
    grounds: frozenset[str] = frozenset()
    note: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it was acknowledged."""
        return self.outcome is Outcome.OK

    def covers(self, key: str) -> bool:
        """Whether a reset discards the changes of a key."""
        return key.startswith(self.part) if self.is_prefix else self.part in ("", key)

    def line(self) -> str:
        """Formats the operation for people."""
        end = "…" if self.end == NEVER else f"{self.end:.0f}"
        what = f"{self.kind} {self.branch}" + ("" if self.key is None else f"/{self.key}")
        value = "" if self.value is None else f" = {shown(self.value)}"
        if self.expected is not None:
            value += f" if {shown(self.expected)}"
        if self.observed is not None:
            value += f", but {shown(self.observed)} was there"
        commit = f" → {self.commit_id[:12]}" if self.commit_id else ""
        claim = " (nothing to commit)" if self.is_claim else ""
        if self.source_id or self.source_branch:
            what += f" ← {self.source_branch}{self.source_id[:12]}^{self.parent_number}"
            what += f" {self.choice} wins" if self.choice else ""
        if self.part:
            what += f"/{self.part}" + "*" * self.is_prefix
        if self.expected_id:
            what += f" from {self.expected_id[:12]}" + " by force" * self.is_forced
        told = " ".join(filter(None, [self.reason, self.note]))
        note = f"  # {told}" if told else ""
        return (
            f"[{self.inv:>5.0f}, {end:>5}] {self.outcome:<4} #{self.number} {self.proc}: "
            f"{what}{value}{commit}{claim}{note}"
        )


def shown(value: int | None) -> str:
    """Formats a value for people."""
    return {None: "?", ABSENT: "nothing", GONE: "no branch"}.get(value, f"v{value}")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as the store has it at the end.

    Attributes:
        message: names the operation that made it.
        contents: path → value.
        create_time_us: decides between several merge bases of one generation.
    """

    commit_id: str
    message: str
    parents: tuple[str, ...]
    contents: Mapping[str, int]
    create_time_us: int = 0


@dataclass
class History:
    """The operations of one run, in the order in which they began.

    Attributes:
        commits: every commit that is named, reachable or built, by id; filled in at the end. No branch may
            ever have named some of them.
        heads: head commit of each branch that exists at the end.
        dangling: references of commits and staging tokens to blocks that the block store does not have.
        doubled: lines of pages and commits that are not greater than the line before them.
        expired: commits that have expired or were about to, and since when.
        unread: commits that were built and cannot be read; one without an answer may have been published.
        quiet_at: time at which the quiet end began: no earlier request is still running; `NEVER` if that
            is unknown.
        log: one line for each event, in order; equal for equal seeds.
        first: number of the first operation; commits name the number of theirs, and some are older than the history.
    """

    ops: list[Op] = field(default_factory=list)
    commits: dict[str, Commit] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    dangling: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    expired: dict[str, float] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    quiet_at: float = NEVER
    log: list[str] = field(default_factory=list)
    clock: int = 0
    first: int = 0

    def tick(self) -> int:
        """Returns the time of the next event."""
        self.clock += 1
        return self.clock

    def begin(
        self,
        proc: str,
        kind: OpKind,
        branch: str,
        key: str | None = None,
        value: int | None = None,
        *,
        inv: float | None = None,
    ) -> Op:
        """Records the begin of an operation, now or at `inv` (for attempts of one logical operation)."""
        number = self.first + len(self.ops)
        op = Op(number, proc, kind, branch, key, value, self.tick() if inv is None else inv)
        self.ops.append(op)
        return op

    def finish(self, op: Op, outcome: Outcome, note: str = "") -> None:
        """Records the answer of an operation."""
        op.outcome = outcome
        op.end = self.tick()
        op.ret = op.end if outcome is Outcome.OK else NEVER
        op.note = note
        self.log.append(op.line())

    def begin_quiet_end(self) -> None:
        """Begins the quiet end: every earlier request has taken effect or never will; only reads and commits
        follow.
        """
        self.quiet_at = self.tick()

    def lines(self, where: str, pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Returns the lines of a page or of a commit, path → value; records each line that is out of order.

        Paths must ascend strictly, so that no path occurs twice.
        """
        found: dict[str, int] = {}
        last: str | None = None
        for path, value in pairs:
            if last is not None and path <= last:
                self.doubled.append(f"{where}: {path!r} = {shown(value)} comes after {last!r}")
            last = path
            found[path] = value
        return found

    def chain(self, branch: str) -> list[str]:
        """Returns the commit ids of a branch's head and its first parents, newest first."""
        chain: list[str] = []
        at: str | None = self.heads.get(branch)
        while at is not None:
            chain.append(at)
            commit = self.commits.get(at)
            at = commit.parents[0] if commit is not None and commit.parents else None
        return chain
