"""What clients did and what they were told, on one clock.

One line per operation on one key: `{proc, op, branch, key, value, inv, ret, outcome}`. The clock counts
events, so no two have the same time. `fail` means that the operation surely had no effect, `info` that
nobody knows: the answer was lost, the replica died, the client hung up. An `info` operation never ends:
its effect may come at any time. `tarn.testing.check.checker` decides whether the promises were kept
(docs/design/simulation.md, "Invariants").
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["ABSENT", "GONE", "NEVER", "Commit", "History", "Op", "OpKind", "Outcome", "shown"]

ABSENT = 0
"""The value of a path that holds nothing."""
GONE = -1
"""The value of every path of a branch that does not exist."""
NEVER = math.inf
"""When an operation ends whose end nobody saw."""


class OpKind(enum.StrEnum):
    """What a client asked for."""

    PUT = "put"
    DELETE = "delete"
    GET = "get"
    LIST = "list"
    """One key of one page of a listing."""
    COMMIT = "commit"
    CREATE = "create"
    """A branch, at a commit: writes every key at once."""
    REMOVE = "remove"
    """A branch: writes `GONE` to every key at once."""


class Outcome(enum.StrEnum):
    """What the client knows."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


@dataclass(slots=True)
class Op:
    """One operation.

    Attributes:
        key: None when it is about all keys of the branch (commit, create, remove).
        value: written or read; `ABSENT` and `GONE` are values, too. None where there is no single one.
        inv: when it was asked for.
        ret: when its answer came; `NEVER` unless it is `ok`.
        commit_id: what a commit returned, or a branch was created at.
        is_claim: a commit that answered "nothing to commit: everything is in `commit_id`".
        expected: of a conditional put, what the key must hold right before.
        observed: of a conditional put that was refused, what was there instead.
        calls: how many requests it is made of, each of which may write (completions of one upload).
        is_upload: a put that is the completion of an upload: its object is staged once.
        is_stepwise: of a branch that comes and goes with its repository: until the answer some replicas know
            it and others do not.
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
    note: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether it was acknowledged."""
        return self.outcome is Outcome.OK

    def line(self) -> str:
        """The operation as people read it."""
        end = "…" if self.end == NEVER else f"{self.end:.0f}"
        what = f"{self.kind} {self.branch}" + ("" if self.key is None else f"/{self.key}")
        value = "" if self.value is None else f" = {shown(self.value)}"
        if self.expected is not None:
            value += f" if {shown(self.expected)}"
        if self.observed is not None:
            value += f", but {shown(self.observed)} was there"
        commit = f" → {self.commit_id[:12]}" if self.commit_id else ""
        claim = " (nothing to commit)" if self.is_claim else ""
        note = f"  # {self.note}" if self.note else ""
        return (
            f"[{self.inv:>5.0f}, {end:>5}] {self.outcome:<4} #{self.number} {self.proc}: "
            f"{what}{value}{commit}{claim}{note}"
        )


def shown(value: int | None) -> str:
    """A value as people read it."""
    return {None: "?", ABSENT: "nothing", GONE: "no branch"}.get(value, f"v{value}")


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit as the store has it at the end.

    Attributes:
        message: names the operation that made it.
        contents: path → value.
    """

    commit_id: str
    message: str
    parents: tuple[str, ...]
    contents: Mapping[str, int]


@dataclass
class History:
    """Operations of one run, in the order in which they began.

    Attributes:
        commits: every commit that is named or reachable, by id; filled in at the end.
        heads: the newest commit of each branch that is there at the end.
        dangling: what a commit or a staging token names and the block store does not have.
        doubled: lines of pages and commits that do not come after the line before them.
        quiet_at: when the quiet end began: nothing that was asked for before it is under way any more;
            `NEVER` if that cannot be said.
        log: a line for each event, in order; equal for equal seeds.
    """

    ops: list[Op] = field(default_factory=list)
    commits: dict[str, Commit] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    dangling: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    quiet_at: float = NEVER
    log: list[str] = field(default_factory=list)
    clock: int = 0

    def tick(self) -> int:
        """The time of the next event."""
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
        """An operation that is asked for now, or was at `inv` (attempts of one logical operation)."""
        op = Op(len(self.ops), proc, kind, branch, key, value, self.tick() if inv is None else inv)
        self.ops.append(op)
        return op

    def finish(self, op: Op, outcome: Outcome, note: str = "") -> None:
        """The answer has come."""
        op.outcome = outcome
        op.end = self.tick()
        op.ret = op.end if outcome is Outcome.OK else NEVER
        op.note = note
        self.log.append(op.line())

    def begin_quiet_end(self) -> None:
        """Whatever was asked for has had its effect by now, or never has one; only reads come, and commits."""
        self.quiet_at = self.tick()

    def lines(self, where: str, pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
        """The lines of a page or of a commit, path and value; notes each that is not in its place.

        Paths must ascend strictly, so that no path is there twice.
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
        """Commit ids of a branch's head and its first parents, newest first."""
        chain: list[str] = []
        at: str | None = self.heads.get(branch)
        while at is not None:
            chain.append(at)
            commit = self.commits.get(at)
            at = commit.parents[0] if commit is not None and commit.parents else None
        return chain
