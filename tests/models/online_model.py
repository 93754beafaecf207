"""A model of online deletion (docs/design/online-deletion.md): one path, one private object, its readers and copies.

Every request to the KV is one atomic step, and a process may stop for any time between two of its steps. Object 1 is
what a PUT of this model stages; 2 is another object; `_GONE` is a delete. Rows of a path in a token: the last write
wins. A commit seals, reads the sealed rows, publishes; then the sealed tokens may be dropped, with their notes.

Promises in every state:
- *kept*: neither the branch, nor a commit, nor an acknowledged copy names object 1 once its block is deleted;
- *read*: a reader that found object 1 can read its block.

    python -m tests.models.online_model            the scenarios, then each guard off
    python -m tests.models.online_model NAME       one guard off, with its trace
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from tests.models.exploring import Explored, Next, explore

__all__ = ["ONLINE_GUARDS", "SCENARIOS", "OnlineModel", "explored"]

ONLINE_GUARDS = {
    "first attempt": "a row of a later attempt is not private: an earlier one may be in a commit",
    "acknowledged": "a row is private only once its writer has verified that its token takes the writes",
    "same token": "a row ends only in the token in which it was born",
    "end acknowledged": "a row ends only by a write that has verified its token, too",
    "known before": "the row that a write ends was acknowledged before that write wrote its own row",
    "note": "a copy notes the address before it is staged",
    "read again": "a copy reads its source again after the note",
    "notes are read": "a row with a note is kept",
    "token is named": "notes count only if the record names their token afterwards",
    "delay": "nothing is deleted before the readers of the replaced row have ended",
    "hold": "nothing is deleted while a backup is under way that may have saved the row",
}

V = TypeVar("V")

_GONE = 3
_ABSENT = 0


@dataclass(frozen=True, slots=True)
class StoreState:
    """The store, and what the replica of the writers remembers.

    Attributes:
        exists: whether the block of object 1 is there.
        staging: the number of the staging token.
        sealed: the sealed tokens, newest first.
        rows: of the path, by token.
        notes: whether a copy of object 1 is noted, by token.
        head: what the commit has at the path.
        commits: what commits ever had.
        copied: whether an acknowledged copy refers to object 1.
        saved: whether a backup that has ended holds object 1.
        is_held: whether a backup is under way.
        born: the token in which object 1 is known as private; -1: none.
        queued: the token of the row that was queued; -1: none.
    """

    exists: bool = True
    staging: int = 0
    sealed: tuple[int, ...] = ()
    rows: tuple[int, ...] = (_ABSENT,) * 3
    notes: tuple[bool, ...] = (False,) * 3
    head: int = _ABSENT
    commits: frozenset[int] = frozenset()
    copied: bool = False
    saved: bool = False
    is_held: bool = False
    born: int = -1
    queued: int = -1

    def with_row(self, token: int, value: int) -> StoreState:
        return replace(self, rows=_replaced_at(self.rows, token, value))

    @property
    def visible(self) -> int:
        """The row that a reader of the path finds."""
        for token in (self.staging, *self.sealed):
            if self.rows[token]:
                return self.rows[token]
        return self.head

    @property
    def is_broken(self) -> bool:
        named = self.visible == 1 or 1 in self.commits or self.copied
        return not self.exists and (named or self.saved)


def _replaced_at(row: tuple[V, ...], at: int, value: V) -> tuple[V, ...]:
    return (*row[:at], value, *row[at + 1 :])


@dataclass(frozen=True, slots=True)
class Process:
    """One process; `known` is what a write knew of object 1 before it wrote."""

    kind: str
    pc: str = "begin"
    token: int = 0
    attempt: int = 0
    known: int = -1
    taken: tuple[int, ...] = ()
    listing: int = _ABSENT
    noted: bool = False


State = tuple[StoreState, tuple[Process, ...]]

SCENARIOS: dict[str, tuple[str, ...]] = {
    "two puts and a commit": ("put", "overwrite", "commit"),
    "a put, a delete and two commits": ("put", "delete", "commit", "commit"),
    "two puts at once and a reader": ("put", "overwrite", "read"),
    "commit and move, delete and move": ("put", "delete", "copy", "commit"),
    "two moves at once": ("put", "overwrite", "copy", "copy"),
    "a delete and a put": ("put", "delete", "overwrite"),
    "a backup and a delete": ("put", "delete", "backup"),
}
"""The processes beside the deleter."""

_SCENARIO_OF = {
    "first attempt": "two puts and a commit",
    "acknowledged": "two puts and a commit",
    "same token": "two puts and a commit",
    "end acknowledged": "two puts and a commit",
    "known before": "two puts and a commit",
    "note": "commit and move, delete and move",
    "read again": "commit and move, delete and move",
    "notes are read": "commit and move, delete and move",
    "token is named": "commit and move, delete and move",
    "delay": "two puts at once and a reader",
    "hold": "a backup and a delete",
}


class OnlineModel:
    """Online deletion with some guards off. The second look at the path, a net, is left out."""

    def __init__(self, processes: tuple[str, ...], *off: str) -> None:
        assert not set(off) - set(ONLINE_GUARDS), off
        self._off = set(off)
        self.start: State = (StoreState(), tuple(map(Process, ("online", *processes))))

    def check(self, states_max: int = 900_000) -> Explored:
        """Explores every order of steps."""
        return explore(self.start, self._next, states_max)

    def _has(self, guard: str) -> bool:
        return guard not in self._off

    def _next(self, state: State) -> Iterator[Next[State]]:
        lake, processes = state
        for token in range(lake.staging):
            if token not in lake.sealed and (lake.rows[token] or lake.notes[token]):
                dropped = lake.with_row(token, _ABSENT)
                dropped = replace(dropped, notes=_replaced_at(lake.notes, token, value=False))
                yield f"T{token} is dropped", (dropped, processes), None
        for number, me in enumerate(processes):
            if me.pc == "end":
                continue
            for label, after, mine in getattr(self, f"_{me.kind}")(lake, me, processes):
                now = (*processes[:number], mine, *processes[number + 1 :])
                broken = "kept" if after.is_broken else None
                if mine.kind == "read" and mine.pc == "end" and not after.exists:
                    broken = "read"
                yield f"{me.kind}: {label}", (after, now), broken

    # ---- writers

    def _write(
        self, lake: StoreState, me: Process, value: int
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            began = replace(me, pc="row", token=lake.staging, known=lake.born)
            yield f"will use T{lake.staging}", lake, began
        elif me.pc == "row":
            after = lake.with_row(me.token, value)
            if value == 1 and not self._has("acknowledged"):
                after = replace(after, born=me.token)
            if not self._has("end acknowledged"):
                after = self._ended(after, me, value)
            yield f"writes to T{me.token}", after, replace(me, pc="check")
        elif lake.staging != me.token:
            if me.attempt == 0 and lake.staging < len(lake.rows):
                yield "met a seal, writes again", lake, replace(me, pc="begin", attempt=1)
            else:
                yield "met a seal: is not acknowledged", lake, replace(me, pc="end")
        else:
            after = self._ended(lake, me, value)
            if value == 1 and (me.attempt == 0 or not self._has("first attempt")):
                after = replace(after, born=me.token)
            yield "is acknowledged", after, replace(me, pc="end")

    def _ended(self, lake: StoreState, me: Process, value: int) -> StoreState:
        """Queues object 1 if this write ends it."""
        known = me.known if self._has("known before") else lake.born
        is_here = known == me.token or not self._has("same token")
        if value == 1 or known < 0 or lake.born != known or not is_here:
            return lake
        return replace(lake, born=-1, queued=known)

    def _put(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Stages object 1."""
        yield from self._write(lake, me, 1)

    def _overwrite(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Stages another object."""
        yield from self._write(lake, me, 2)

    def _delete(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin" and lake.visible in {_ABSENT, _GONE}:
            yield "finds nothing", lake, replace(me, pc="end")
        else:
            yield from self._write(lake, me, _GONE)

    def _copy(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Copies object 1 to another path; its row there is acknowledged at once."""
        if me.pc == "begin":
            if lake.visible == 1:
                is_staged = lake.rows[lake.staging] == 1
                pc = "note" if is_staged and self._has("note") else "stage"
                yield "finds it", lake, replace(me, pc=pc, token=lake.staging)
        elif me.pc == "note":
            noted = replace(lake, notes=_replaced_at(lake.notes, me.token, value=True))
            pc = "again" if self._has("read again") else "stage"
            yield f"notes it in T{me.token}", noted, replace(me, pc=pc)
        elif me.pc == "again":
            pc = "stage" if lake.visible == 1 else "end"
            yield "reads its source again", lake, replace(me, pc=pc)
        else:
            yield "is acknowledged", replace(lake, copied=True), replace(me, pc="end")

    # ---- others

    def _commit(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            if lake.staging + 1 < len(lake.rows):
                sealed = (lake.staging, *lake.sealed)
                after = replace(lake, staging=lake.staging + 1, sealed=sealed)
                yield f"seals T{lake.staging}", after, replace(me, pc="scan", taken=sealed)
        elif me.pc == "scan":
            found = next((lake.rows[each] for each in me.taken if lake.rows[each]), lake.head)
            yield "reads the sealed rows", lake, replace(me, pc="publish", listing=found)
        elif lake.sealed[len(lake.sealed) - len(me.taken) :] != me.taken:
            yield "gives up", lake, replace(me, pc="end")
        else:
            listing = _ABSENT if me.listing == _GONE else me.listing
            kept = lake.sealed[: len(lake.sealed) - len(me.taken)]
            after = replace(lake, sealed=kept, head=listing, commits=lake.commits | {listing})
            yield "publishes", after, replace(me, pc="end")

    def _read(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            if lake.visible == 1:
                yield "finds it", lake, replace(me, pc="bytes")
        else:
            yield "reads the block", lake, replace(me, pc="end")

    def _backup(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Holds collections, saves the rows; when it has ended, the bucket has what it saved."""
        if me.pc == "begin":
            yield "holds", replace(lake, is_held=True), replace(me, pc="rows")
        elif me.pc == "rows":
            yield "saves the row", lake, replace(me, pc="over", noted=lake.visible == 1)
        else:
            after = replace(lake, saved=me.noted and not lake.exists, is_held=False)
            yield "ends", after, replace(me, pc="end")

    # ---- the deleter

    def _online(
        self, lake: StoreState, me: Process, processes: tuple[Process, ...]
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            if lake.queued >= 0:
                noted = lake.notes[lake.queued] and self._has("notes are read")
                pc = "end" if noted else "record"
                yield "reads the notes", lake, replace(me, pc=pc, token=lake.queued)
        elif me.pc == "record":
            named = me.token in (lake.staging, *lake.sealed) or not self._has("token is named")
            yield "reads the record", lake, replace(me, pc="wait" if named else "end")
        elif me.pc == "wait":
            readers = (each for each in processes if each.kind == "read")
            if not self._has("delay") or all(each.pc != "bytes" for each in readers):
                yield "waited", lake, replace(me, pc="hold")
        elif me.pc == "hold":
            if not (lake.is_held and self._has("hold")):
                yield "finds no hold", lake, replace(me, pc="delete")
        else:
            yield "deletes the block", replace(lake, exists=False), replace(me, pc="end")


def explored(guard: str) -> Explored:
    """Explores the scenario of a guard, with the guard off."""
    return OnlineModel(SCENARIOS[_SCENARIO_OF[guard]], guard).check()


def main(names: list[str]) -> int:
    """Prints the results; 1 if a promise is broken with all guards, or none with one guard off."""
    failed = False
    if not names:
        for name, processes in SCENARIOS.items():
            found = OnlineModel(processes).check()
            failed |= found.broken is not None or not found.is_complete
            print(f"{name}: {found.states:,} states: {found.broken or 'holds'}", *found.steps)
    for guard in names or ONLINE_GUARDS:
        found = explored(guard)
        failed |= found.broken is None
        print(f"without '{guard}': {found.broken or 'NOT DETECTED'} after {len(found.steps)} steps")
        if names:
            print(*found.steps, sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
