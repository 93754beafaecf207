"""A model of garbage collection beside writers: one branch, one address (docs/design/collection.md).

Every request to the KV is one atomic step. Time passes in two steps, at any moment: the address reaches the age at
which it may not be staged any more (1), and the age at which a mark may judge it (2). A process may stop for any time
between two of its steps. A row or a listing with the address is *acknowledged* if its writer was told so.

Promises in every state:
- *kept*: no acknowledged row of the branch, no compacted listing and no commit names a deleted block;
- *read*: a reader that found the address can read its block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.models.exploring import Explored, Next, explore

__all__ = ["ADDRESS_GUARDS", "AddressModel", "StoreState", "Process"]

ADDRESS_GUARDS = {
    "age": "a write is acknowledged only if its address is young",
    "not ahead": "an address from the future is refused: its age says nothing",
    "age after durable": "the age is checked after the row is durable, not only before it is written",
    "cutoff above limit": "a mark judges only blocks that are older than any address that may be staged",
    "uploads first": "uploads are read before staged rows",
    "sealed tokens": "all tokens of a record are read, not only the staging token",
    "compacted after tokens": "compacted listings are read after the tokens",
    "commits last": "commits are read after compacted listings",
    "all commits": "every commit is a root, also one that no branch leads to",
    "grace": "nothing is deleted before the readers of the time of the mark have ended",
}

_NO, _DOUBTFUL, _ACKED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class StoreState:
    """The store. Numbers stand for tokens; a reference to the address is `_NO`, `_DOUBTFUL` or `_ACKED`.

    Attributes:
        age: of the block.
        is_ahead: the gateway's clock was days ahead, so the address is from the future.
    """

    age: int = 0
    is_ahead: bool = False
    exists: bool = True
    upload: bool = False
    staging: int = 0
    sealed: tuple[int, ...] = ()
    compacted: int = _NO
    head: int = _NO
    commits: int = _NO
    rows: tuple[int, ...] = (_NO, _NO, _NO, _NO)

    def with_row(self, token: int, value: int) -> StoreState:
        rows = list(self.rows)
        rows[token] = value
        return replace(self, rows=tuple(rows))

    def seal(self) -> StoreState:
        """The staging token becomes the newest sealed one."""
        return replace(self, staging=self.staging + 1, sealed=(self.staging, *self.sealed))

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.staging, *self.sealed)

    @property
    def visible(self) -> int:
        """The reference that a reader of the branch finds."""
        staged = max(self.rows[token] for token in self.tokens)
        return max(staged, self.compacted, self.head)

    @property
    def is_broken(self) -> bool:
        """Whether an acknowledged reference names a deleted block."""
        return not self.exists and _ACKED in {self.visible, self.commits}


@dataclass(frozen=True, slots=True)
class Process:
    """One process. `left` are the steps of roots that a collector has not done."""

    kind: str
    pc: str = "begin"
    token: int = 0
    taken: tuple[int, ...] = ()
    listing: int = _NO
    compacted: int = _NO
    left: tuple[str, ...] = ()
    found: bool = False
    judges: bool = False
    is_second: bool = False


State = tuple[StoreState, tuple[Process, ...]]

_ORDER = ("uploads", "record", "tokens", "compacted", "commits")


class AddressModel:
    """The protocol with some guards off.

    Args:
        start: the store at the beginning.
        processes: what runs beside the collector.
        off: guards that are off.
        looks: how often roots are read before a deletion: 2 as in Tarn; 1 shows that each look is right by itself.
    """

    def __init__(
        self, start: StoreState, processes: tuple[str, ...], *off: str, looks: int = 2
    ) -> None:
        assert not set(off) - set(ADDRESS_GUARDS), off
        self._off = set(off)
        self._looks = looks
        self.start: State = (start, tuple(map(Process, ("collect", *processes))))

    def check(self, states_max: int = 400_000) -> Explored:
        """Explores every order of steps."""
        return explore(self.start, self._next, states_max)

    def _has(self, guard: str) -> bool:
        return guard not in self._off

    def _next(self, state: State) -> Iterator[Next[State]]:
        lake, processes = state
        if lake.age < 2:
            yield "time passes", (replace(lake, age=lake.age + 1), processes), None
        for token, row in enumerate(lake.rows):
            if row and token not in lake.tokens and token < lake.staging:
                yield f"T{token} is dropped", (lake.with_row(token, _NO), processes), None
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

    def _put(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Stages the address; the block is written."""
        if me.pc == "begin":
            if self._is_refused(lake):
                yield "is refused", lake, replace(me, pc="end")
            else:
                yield f"will use T{lake.staging}", lake, replace(me, pc="row", token=lake.staging)
        elif me.pc == "row":
            row = max(lake.rows[me.token], _DOUBTFUL)
            yield f"writes to T{me.token}", lake.with_row(me.token, row), replace(me, pc="check")
        elif lake.staging != me.token:
            yield "met a seal: is not acknowledged", lake, replace(me, pc="end")
        elif self._has("age after durable") and self._is_refused(lake):
            yield "is too late: is not acknowledged", lake, replace(me, pc="end")
        else:
            yield "is acknowledged", lake.with_row(me.token, _ACKED), replace(me, pc="end")

    def _is_refused(self, lake: StoreState) -> bool:
        if lake.is_ahead:  # it never seems old
            return self._has("age") and self._has("not ahead")
        limit = 1 if self._has("cutoff above limit") else 2
        return self._has("age") and lake.age >= limit

    def _copy(
        self, lake: StoreState, me: Process, rest: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Copies the reference that the branch has to another path, which is not overwritten by a reset."""
        if me.pc == "begin":
            if lake.visible:
                yield "finds the address", lake, replace(me, pc="begin row")
        elif me.pc == "begin row":
            yield from self._put(lake, replace(me, pc="begin"), rest)
        else:
            yield from self._put(lake, me, rest)

    def _copy_committed(
        self, lake: StoreState, me: Process, rest: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """A branch, a reset or a cherry-pick onto a commit of any age: the head names it again."""
        if lake.commits and not lake.head:
            yield "names the commit again", replace(lake, head=lake.commits), replace(me, pc="end")

    def _complete(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Completes an upload: its record keeps the address; so the age is not checked."""
        if me.pc == "begin":
            yield f"will use T{lake.staging}", lake, replace(me, pc="row", token=lake.staging)
        elif me.pc == "row":
            row = max(lake.rows[me.token], _DOUBTFUL)
            yield f"writes to T{me.token}", lake.with_row(me.token, row), replace(me, pc="check")
        elif me.pc == "check":
            if lake.staging == me.token:
                told = lake.with_row(me.token, _ACKED)
                yield "is acknowledged", told, replace(me, pc="forget")
            else:
                yield "met a seal, writes again", lake, replace(me, pc="begin")
        else:
            yield "the upload is forgotten", replace(lake, upload=False), replace(me, pc="end")

    # ---- operations on the branch

    def _build(
        self, lake: StoreState, me: Process, *, is_commit: bool
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            sealed = lake.seal()
            began = replace(me, pc="scan", taken=sealed.sealed, compacted=sealed.compacted)
            yield f"seals T{lake.staging}", sealed, began
        elif me.pc == "scan":
            rows = (lake.rows[token] for token in me.taken)
            listing = max(*rows, lake.compacted, lake.head if is_commit else _NO)
            yield "builds its listing", lake, replace(me, pc="publish", listing=listing)
        elif lake.sealed[len(lake.sealed) - len(me.taken) :] != me.taken or (
            lake.compacted != me.compacted
        ):
            yield "gives up", lake, replace(me, pc="end")
        else:
            kept = lake.sealed[: len(lake.sealed) - len(me.taken)]
            after = replace(lake, sealed=kept, compacted=me.listing)
            if is_commit:
                after = replace(after, compacted=_NO, head=me.listing, commits=me.listing)
            yield "publishes", after, replace(me, pc="end")

    def _commit(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        yield from self._build(lake, me, is_commit=True)

    def _compact(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        yield from self._build(lake, me, is_commit=False)

    def _reset(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        """Discards what is uncommitted, and moves the head off its commit."""
        yield (
            "discards everything",
            replace(lake, staging=lake.staging + 1, sealed=(), compacted=_NO, head=_NO),
            replace(me, pc="end"),
        )

    def _read(
        self, lake: StoreState, me: Process, _: object
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            if lake.visible == _ACKED:
                yield "finds the address", lake, replace(me, pc="bytes")
        else:
            yield "reads the block", lake, replace(me, pc="end")

    # ---- the collector

    def _order(self) -> tuple[str, ...]:
        order = list(_ORDER)
        for guard, stage, place in (
            ("uploads first", "uploads", 4),
            ("compacted after tokens", "compacted", 1),
            ("commits last", "commits", 1),
        ):
            if not self._has(guard):
                order.remove(stage)
                order.insert(place, stage)
        return tuple(order)

    def _collect(
        self, lake: StoreState, me: Process, processes: tuple[Process, ...]
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if me.pc == "begin":
            judges = lake.age >= (2 if self._has("cutoff above limit") else 1)
            yield "begins", lake, replace(me, pc="roots", left=self._order(), judges=judges)
        elif me.pc == "roots" and me.left:
            yield self._root(lake, me)
        elif me.pc == "roots":
            if me.found or not me.judges:
                yield "keeps the block", lake, replace(me, pc="end")
            elif me.is_second or self._looks == 1:
                yield from self._deletion(lake, me, processes)
            else:
                # The readers of this moment have to end before the sweep begins.
                yield "puts the block into quarantine", lake, replace(me, pc="grace")
        elif me.pc == "grace":
            if self._is_calm(processes):
                again = replace(me, pc="roots", left=self._order(), is_second=True, found=False)
                yield "begins its sweep", lake, again
        elif me.pc == "delete":
            yield from self._deletion(lake, me, processes)

    def _deletion(
        self, lake: StoreState, me: Process, processes: tuple[Process, ...]
    ) -> Iterator[tuple[str, StoreState, Process]]:
        if self._looks == 2 or self._is_calm(processes):
            yield "deletes the block", replace(lake, exists=False), replace(me, pc="end")

    def _is_calm(self, processes: tuple[Process, ...]) -> bool:
        """No reader that began before the mark's end is left: it would have ended by time."""
        readers = (each for each in processes if each.kind == "read")
        return not self._has("grace") or all(each.pc != "bytes" for each in readers)

    def _root(self, lake: StoreState, me: Process) -> tuple[str, StoreState, Process]:
        """Reads one stage; the tokens one by one."""
        stage, left = me.left[0], me.left[1:]
        is_there = False
        if stage == "uploads":
            is_there = lake.upload
        elif stage == "record":
            taken = lake.tokens if self._has("sealed tokens") else (lake.staging,)
            return "reads the record", lake, replace(me, left=left, taken=taken)
        elif stage == "tokens":
            token, *rest = me.taken
            is_there = lake.rows[token] != _NO
            left = me.left if rest else left
            after = replace(me, left=left, taken=tuple(rest), found=me.found or is_there)
            return f"reads T{token}", lake, after
        elif stage == "compacted":
            is_there = lake.compacted != _NO
        else:
            is_there = (lake.commits if self._has("all commits") else lake.head) != _NO
        return f"reads {stage}", lake, replace(me, left=left, found=me.found or is_there)
