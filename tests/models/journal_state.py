"""The state of the model of the journal (see `journal_model`): a store, a bucket, and what a rebuild makes of it.

A value of the key is the number of the write that made it; 0 is the absent key.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["JOURNAL_GUARDS", "Change", "Event", "StoreState", "Record", "Row", "Rules", "Told"]

JOURNAL_GUARDS = {
    # Writers.
    "one request": "the event of a row is written in the request that writes the row",
    "condition": "the event of a conditional write is written only if its condition holds",
    "one id": "the attempts of a request have one id",
    "record's event": "the event of a record is applied by the compare-and-set that changes the record",
    "registered first": "a token is registered before a record names it",
    "expected record": "it is registered for the record that the compare-and-set expects, and for no other",
    # Order.
    "store's order": "an event has the order of its row, by which the store decides, and not the time of its caller",
    "ties": "of equal orders the greater value counts, as in the store",
    "layers": "rows are ordered by the layers of the record, and by their order inside a token only",
    "last record": "the last record of a branch says which tokens count",
    "sequence": "the last record is that of the greatest order, not the one that arrived last",
    "lives": "the orders of records go on over all branches of a name",
    "id of a token": "a rebuild takes all events of a token: one id may be in two tokens",
    # The drain.
    "oldest first": "a pass reads the tokens of a branch from the oldest to the newest",
    "record again": "it reads the record before the rows and after them, and begins again if it has changed",
    "one file": "what a pass has read of a branch is in one file",
    "file first": "events are removed, and tokens dropped, when they are in the bucket",
    "own rows": "of the events of records, exactly those of the file are removed",
    "look before last scan": "the last scan of a token begins after a read of a record that does not name it",
    "named once": "a token that no record in the bucket names is not over: it may not have begun",
    # Other operations.
    "sweep waits": "a block goes when the events that were there when it was found unreferenced are in the bucket",
    "full pass": "it waits for events that landed late, too: those in a token that is still named",
    "epoch": "a rebuild reads the files of the newest epoch only",
    "base": "an epoch begins with all that the store then holds, with the orders of that store",
    "new names": "a restored store has other tokens than the store before it",
    "new token": "a rebuilt branch has a token that no store had before",
    "flattened": "a rebuilt branch has no sealed tokens: what they had is in its listing",
}


class Row(NamedTuple):
    """The key's row in a token. The greatest one counts."""

    order: int
    value: int


class Event(NamedTuple):
    """The event of a row.

    Attributes:
        number: its id.
        order: by which a rebuild orders it.
        time: of its caller.
    """

    token: int
    number: int
    order: int
    value: int
    time: int


class Record(NamedTuple):
    """The branch record; newest sealed token first. `base`: the key in the compacted listing; None: there is none."""

    staging: int = 0
    sealed: tuple[int, ...] = ()
    head: int = 0
    base: int | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        return (self.staging, *self.sealed)

    @property
    def beneath(self) -> int:
        return self.head if self.base is None else self.base


class Change(NamedTuple):
    """The event of a record: the whole record after the change; None: the branch was deleted.

    Its order in the store is (life, sequence).
    """

    life: int
    sequence: int
    record: Record | None


class Told(NamedTuple):
    """What is in the bucket, of one epoch.

    Attributes:
        rows: events of rows.
        changes: events of records.
        newest: the one that arrived last; only without the guard "sequence".
    """

    rows: frozenset[Event] = frozenset()
    changes: frozenset[Change] = frozenset((Change(0, 0, Record()),))
    newest: Change | None = None

    def names(self, token: int) -> bool:
        return any(each.record and token in each.record.tokens for each in self.changes)


class StoreState(NamedTuple):
    """The store, the bucket, and the answers.

    Attributes:
        change: life, sequence and record of the branch as they are now.
        rows: by token; None: no row.
        events: of rows, in the store.
        waiting: events of records, in the store.
        registered: tokens that the drain knows.
        dropped: tokens that are dropped; what lands there later is gone, too.
        told: the bucket, by epoch.
        blocks: values whose block was deleted.
        sweeps: how often that was; a build that meets one is made again (rule 13).
        commits: values that a commit holds.
        shown: life and value of all that readers could see.
        began: for each write, what was acknowledged before it.
        acked: acknowledged writes.
        homes: the token in which each was acknowledged.
        excused: writes that a reset, a deletion or a restore may have taken.
        kept: acknowledged writes that were in the bucket when the store was rebuilt from it.
    """

    change: Change = Change(0, 0, Record())
    rows: tuple[Row | None, ...] = (None,)
    events: frozenset[Event] = frozenset()
    waiting: frozenset[Change] = frozenset()
    registered: frozenset[int] = frozenset((0,))
    dropped: frozenset[int] = frozenset()
    told: tuple[Told, ...] = (Told(),)
    blocks: frozenset[int] = frozenset()
    sweeps: int = 0
    commits: frozenset[int] = frozenset()
    shown: frozenset[tuple[int, int | None]] = frozenset(((0, 0),))
    began: tuple[tuple[int, frozenset[int]], ...] = ()
    acked: frozenset[int] = frozenset()
    homes: frozenset[tuple[int, int]] = frozenset()
    excused: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()

    @property
    def record(self) -> Record | None:
        return self.change.record

    @property
    def visible(self) -> int | None:
        """What a reader finds; None: no branch."""
        if self.record is None:
            return None
        rows = (self.rows[token] for token in self.record.tokens)
        return next((row.value for row in rows if row is not None), self.record.beneath)

    def seen(self) -> StoreState:
        """Remembers what readers can see now."""
        return self._replace(shown=self.shown | {(self.change.life, self.visible)})

    def with_token(self) -> tuple[StoreState, int]:
        """Adds a token that no record names yet."""
        return self._replace(rows=(*self.rows, None)), len(self.rows)

    def with_row(self, token: int, row: Row) -> StoreState:
        """Writes a row; the greatest counts."""
        now = self.rows[token]
        if token in self.dropped or (now is not None and now >= row):
            return self
        return self._replace(rows=(*self.rows[:token], row, *self.rows[token + 1 :])).seen()

    def with_event(self, event: Event) -> StoreState:
        """Writes an event over the one with the same key."""
        if event.token in self.dropped:
            return self
        same = {e for e in self.events if (e.token, e.number) == (event.token, event.number)}
        return self._replace(events=(self.events - same) | {event})

    def tells(self, epoch: int, told: Told) -> StoreState:
        """Writes a file of an epoch."""
        return self._replace(told=(*self.told[:epoch], told, *self.told[epoch + 1 :]))

    def acknowledges(self, write: int, token: int) -> StoreState:
        return self._replace(acked=self.acked | {write}, homes=self.homes | {(write, token)})

    def excuses(self) -> StoreState:
        """Excuses all writes that have begun."""
        return self._replace(excused=self.excused | {write for write, _ in self.began})


class Rules:
    """The guards that are on, and the rebuild that follows them."""

    def __init__(self, off: frozenset[str]) -> None:
        assert off <= set(JOURNAL_GUARDS), f"no such guard: {off - set(JOURNAL_GUARDS)}"
        self._off = off

    def has(self, guard: str) -> bool:
        return guard not in self._off

    def rebuilt(self, lake: StoreState) -> tuple[int, int | None]:
        """The life and the value that a rebuild from the bucket gives; it reads nothing else."""
        last, value = self.read(lake)
        return last.life, value

    def read(self, lake: StoreState) -> tuple[Change, int | None]:
        """The newest record of the branch in the bucket, and the value of the key in that branch."""
        told = lake.told[-1]
        if not self.has("epoch"):
            changes = frozenset[Change]().union(*(each.changes for each in lake.told))
            rows = frozenset[Event]().union(*(each.rows for each in lake.told))
            told = Told(rows, changes)
        by_life = self.has("lives")
        last = max(
            told.changes,
            key=lambda each: (each.life if by_life else 0, each.sequence, each.life),
        )
        if told.newest is not None:
            last = told.newest
        if last.record is None:
            return last, None
        tokens: tuple[int, ...] = last.record.tokens
        if not self.has("last record"):
            named = {t for each in told.changes if each.record for t in each.record.tokens}
            tokens = tuple(sorted(named, reverse=True))
        rows = told.rows
        if not self.has("id of a token"):
            rows = frozenset(
                min(event for event in rows if event.number == number)
                for number in {event.number for event in rows}
            )
        if not self.has("layers"):
            found = self._newest({event for event in rows if event.token in tokens})
        else:
            layers = (self._newest({e for e in rows if e.token == token}) for token in tokens)
            found = next((event for event in layers if event is not None), None)
        return last, last.record.beneath if found is None else found.value

    def _newest(self, events: set[Event]) -> Event | None:
        sign = 1 if self.has("ties") else -1
        by_store = self.has("store's order")
        return max(
            events,
            key=lambda e: (e.order if by_store else e.time, sign * e.value),
            default=None,
        )

    def broken(self, lake: StoreState) -> str | None:
        """The promise that a state breaks, if the store were lost now."""
        told = lake.told[-1]
        life, value = self.rebuilt(lake)
        if (life, value) not in lake.shown:
            return f"invented: {value} of life {life} was never visible"
        if value in lake.blocks:
            return f"dangling: the block of {value} is deleted"
        named = lake.record.tokens if lake.record is not None else ()
        undrained = {event for event in lake.events if event.token in named} - told.rows
        is_drained = not undrained and lake.waiting <= told.changes
        if is_drained and (life, value) != (lake.change.life, lake.visible):
            return f"differs: all is drained, but {value} is rebuilt instead of {lake.visible}"
        for write, before in lake.began:
            if write not in lake.acked - lake.excused:
                continue
            there = write in lake.kept or any(
                (event.value, event.token) in lake.homes
                for event in told.rows
                if event.value == write
            )
            if there and value != write and (value in before or value == 0):
                return f"lost: {write} is in the bucket, and the older {value} is rebuilt"
            left = (e for e in lake.events if e.value == write and e.token in lake.registered)
            if not there and not any(left):
                return f"lost: {write} is acknowledged, and will never be in the bucket"
        numbers: dict[int, int] = {}
        for event in told.rows:
            if numbers.setdefault(event.value, event.number) != event.number:
                return f"twice: the feed has {event.value} under two ids"
        return None
