"""A model of rebuilds of a lost store (docs/design/journal.md, "Epochs" and "Rebuild").

The store may be lost at any step, and nobody may have told its replicas: they go on. They drain, delete blocks, and try
to begin epochs, while one or two rebuilds read the bucket, fill new stores, begin epochs, and open. Every request to a
store or the bucket is one atomic step, and a process may stop for any time, or for ever, between two of its steps. So a
rebuild that died and was repeated is a rebuild that stopped, beside another one.

What a store does inside (tokens, records, orders) is the part of `journal_model`; here a store is a row of writes.

Promises in every state:
- *chain*: the numbers of the epochs have no gap;
- *lost*: a write that came into a file while its epoch was the newest is what a rebuild reads, and in a store that has
  been rebuilt since;
- *invented*: what a rebuild reads is what some store had;
- *dangling*: the block of what a rebuild reads, and of what the store of the newest epoch holds, is there;
- *hidden*: a store that was lost begins no epoch after another one has opened in its place, and one that was restored
  none after an epoch that came later;
- *both*: into the newest epoch, only the store drains that has begun it.

    python -m tests.models.rebuild_model            the scenarios, then each guard off
    python -m tests.models.rebuild_model --long     larger scenarios, too: minutes
    python -m tests.models.rebuild_model GUARD      one guard off, with its trace
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.models.exploring import Explored, Next, explore
from tests.models.rebuild_state import (
    ANY,
    NOBODY,
    REBUILD_GUARDS,
    RELEASE,
    Contents,
    Epoch,
    EpochRow,
    LakeState,
    RebuildRules,
    Store,
    listing_of,
    value_of,
)

__all__ = ["HOLDS", "LONG", "MISSED_BY", "REBUILD_GUARDS", "Scenario", "check", "reach"]

Scenario = tuple[str, ...]
"""How it begins, and the processes: what each does, and in which store. Rebuilt stores have the numbers from 1 (or 2)
on, in the order in which they are filled; a process waits until its store is open. One with `then` begins after the
process before it has ended."""


class Local(NamedTuple):
    """The state of one process."""

    kind: str
    number: int
    pc: str = "begin"
    value: int = 0
    newest: int = 0
    row: EpochRow | None = None
    store: int = NOBODY
    contents: Contents = ()
    files: frozenset[tuple[int, int]] = frozenset()
    due: frozenset[int] = frozenset()

    @property
    def at(self) -> int:
        return int(self.kind.rpartition(" ")[2])

    def ends(self) -> Local:
        return Local(self.kind, self.number, "end")


Step = tuple[str, LakeState, Local]
State = tuple[LakeState, tuple[Local, ...]]


# ---- the work of a store


def put(lake: LakeState, me: Local, _rules: RebuildRules) -> Iterator[Step]:
    """Writes the key, with its event, and is acknowledged."""
    held = lake.stores[me.at].is_held
    yield f"writes {me.number}", lake.writes(me.at, me.number, is_held=held), me.ends()


def release(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """A person releases the collections of a rebuilt store."""
    if rules.has("release is an event"):
        after = lake.writes(me.at, RELEASE, is_held=False)
    else:
        after = lake.with_store(me.at, lake.stores[me.at]._replace(is_held=False))
    yield "releases the collections", after, me.ends()


def drain(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Passes over the store, for ever."""
    if me.pc == "begin":
        yield from _begin_pass(lake, me)
    elif me.pc == "scan":
        yield _scanned(lake, me)
    else:
        after = _with_file(lake, me)
        yield "writes its file", after, Local(me.kind, me.number)


def pass_(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """One pass over the store, which removes the events that are in its file; the drain above leaves them."""
    if me.pc == "begin":
        yield from _begin_pass(lake, me)
    elif me.pc == "scan":
        yield _scanned(lake, me)
    elif me.pc == "file":
        pc = "row" if rules.has("row again") else "remove"
        # It promises nothing before its end.
        yield "writes its file", _with_file(lake, me)._replace(due=lake.due), me._replace(pc=pc)
    elif me.pc == "row":
        yield _looks_at_row(lake, me, "remove")
    else:
        store = lake.stores[me.at]
        removed = store.removed.union(write for _, write in me.files)
        after = lake.with_store(me.at, store._replace(removed=removed))
        if lake.epoch(me.newest) == lake.newest:
            after = after._replace(due=after.due.union(me.contents))
        yield "removes the events", after, me.ends()


def _scanned(lake: LakeState, me: Local) -> Step:
    store = lake.stores[me.at]
    events = (each for each in enumerate(store.contents) if each[1] not in store.removed)
    mine = me._replace(pc="file", contents=store.contents, files=frozenset(events))
    return "reads the events", lake, mine


def _looks_at_row(lake: LakeState, me: Local, pc: str) -> Step:
    assert me.row is not None
    if lake.stores[me.at].row == me.row:
        return f"finds epoch {me.row.number} continued", lake, me._replace(pc=pc)
    return f"is refused: epoch {me.row.number} is not continued", lake, me.ends()


def _begin_pass(lake: LakeState, me: Local) -> Iterator[Step]:
    """Reads the row of the epoch.

    Production's `Epochs.current` also refuses a pass if another epoch is the newest. That is for the alert, and for
    nothing else: here a pass begins anyway.
    """
    row = lake.stores[me.at].row
    if row is not None and row.has_begun:
        yield (
            f"begins a pass in epoch {row.number}",
            lake,
            me._replace(pc="scan", newest=row.number, row=row),
        )


def _look_again(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    row, newest = me.row or lake.stores[me.at].row, lake.newest  # without a pass, the row of now
    assert row is not None
    if (newest.number, newest.attempt) == (row.number, row.attempt):
        yield "finds its epoch the newest", lake, me._replace(pc="delete")
    elif rules.has("remembered last"):
        yield f"is refused: epoch {newest.number} is another one", lake, me.ends()
    else:
        yield "is refused, but remembers its pass", lake, me._replace(pc="more", value=0)


def _with_file(lake: LakeState, me: Local) -> LakeState:
    """Writes what was read into the folder of the epoch."""
    epoch = lake.epoch(me.newest)
    assert epoch is not None
    own = lake.epoch(me.newest) == lake.newest
    begin = len(epoch.base) if epoch.store == me.at else 0
    files = epoch.files | {each for each in me.files if each[0] >= begin}
    if files == epoch.files:
        return lake
    after = lake.with_epoch(epoch._replace(files=files))
    if own and epoch.store != me.at:
        text = f"both: store {me.at} drains into epoch {epoch.number} of store {epoch.store}"
        return after._replace(broken=text)
    return after._replace(due=after.due.union(me.contents)) if own else after


def sweep(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Deletes blocks that nothing in its store refers to (`Drain.before_deletion`).

    The second one needs no pass if its reference ended before the pass for the first one began.
    """
    store = lake.stores[me.at]
    if me.pc == "begin":
        if store.is_held:
            return
        named = {value_of(store.contents), RELEASE, store.listing}
        for value in lake.written - lake.deleted - named:
            pc = "pass" if rules.has("file before") else "again"
            # What is marked was old.
            after = lake._replace(young=lake.young - {value}, marked=lake.marked | {value})
            yield f"marks {value}", after, me._replace(pc=pc, value=value)
    elif me.pc == "pass":
        yield from _begin_pass(lake, me)
    elif me.pc == "scan":
        yield _scanned(lake, me)
    elif me.pc == "file":
        pc = "row" if rules.has("row again") else "again"
        yield "writes its file", _with_file(lake, me), me._replace(pc=pc)
    elif me.pc == "row":
        yield _looks_at_row(lake, me, "again")
    elif me.pc == "again" and rules.has("look again"):
        yield from _look_again(lake, me, rules)
    elif me.pc in {"again", "delete", "send"} and me.value < 0:
        yield from _sweep_listing(lake, me)
    elif me.pc in {"again", "delete"}:
        yield _deleted(lake, me.value, me._replace(pc="more", value=0))
    else:
        for value in set(me.contents) - lake.deleted - {value_of(me.contents), RELEASE}:
            yield _deleted(lake, value, me.ends())


def _sweep_listing(lake: LakeState, me: Local) -> Iterator[Step]:
    """Looks whether a listing is young, and soon afterwards deletes it, or does not."""
    if me.pc == "send":
        after = lake._replace(sent=lake.sent - {me.value})
        yield "was too slow, and deletes nothing", after, me.ends()
        yield _deleted(after, me.value, me.ends())
    elif me.value in lake.young:
        yield f"finds {me.value} young", lake, me.ends()
    else:
        after = lake._replace(sent=lake.sent | {me.value})
        yield f"finds {me.value} old", after, me._replace(pc="send")


def _deleted(lake: LakeState, value: int, me: Local) -> Step:
    after = lake._replace(deleted=lake.deleted | {value})
    return f"deletes the block of {value}", after, me


# ---- epochs


def begin(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """A replica of a store whose epoch has not begun begins one, or takes over an attempt (`Epochs.current`)."""
    if me.pc == "begin":
        row = lake.stores[me.at].row
        guard = "new repository" if lake.stores[me.at].contents else "new store"
        if row is None and rules.has(guard):
            yield "is refused: its store is new", lake, me.ends()
        elif row is not None and row.has_begun:
            yield "finds its epoch begun", lake, me.ends()
        else:
            yield "reads the row of its epoch", lake, me._replace(pc="newest", row=row)
    elif me.pc == "newest":
        yield (
            f"finds epoch {lake.newest.number}",
            lake,
            me._replace(pc="decide", newest=lake.newest.number),
        )
    elif me.pc == "decide":
        yield from _decide(lake, me, rules)
    elif me.pc == "base":
        contents = lake.stores[me.at].contents
        yield "writes its base", lake, me._replace(pc="publish", contents=contents)
    elif me.pc == "publish":
        yield from _publish(lake, me, rules)
    else:
        assert me.row is not None
        yield from _moved(lake, me, me.row, me.row._replace(has_begun=True), "end")


def _decide(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    row, newest = me.row, lake.epoch(me.newest)
    assert newest is not None
    if row is None or row.follows is not None:
        follows = ANY if row is None else row.follows
        if follows not in {ANY, me.newest} and rules.has("follows one"):
            yield f"is refused: it may follow epoch {follows} only", lake, me.ends()
        else:
            yield from _moved(lake, me, row, EpochRow(me.newest + 1, me.number), "base")
    elif me.newest < row.number:
        number = row.number if rules.has("one number") else row.number + 1
        yield from _moved(lake, me, row, EpochRow(number, me.number), "base")
    elif me.newest == row.number and (newest.store == me.at or not rules.has("store's half")):
        yield from _moved(lake, me, row, EpochRow(row.number, newest.attempt, True), "end")
    else:
        yield f"is refused: epoch {me.newest} is of another store", lake, me.ends()


def _moved(
    lake: LakeState, me: Local, before: EpochRow | None, after: EpochRow, pc: str
) -> Iterator[Step]:
    """Changes the row of the epoch by a compare-and-set."""
    store = lake.stores[me.at]
    if store.row != before:
        yield "finds another attempt", lake, me.ends()
        return
    mine = me.ends() if pc == "end" else me._replace(pc=pc, row=after, newest=0)
    yield (
        f"notes epoch {after.number}{', begun' if after.has_begun else ''}",
        lake.with_store(me.at, store._replace(row=after)),
        mine,
    )


def _publish(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    assert me.row is not None
    there = lake.epoch(me.row.number)
    if there is None or not rules.has("written once"):
        epoch = Epoch(me.row.number, me.at, me.row.attempt, base=me.contents)
        after = lake.with_epoch(epoch)
        if me.at in lake.lost:
            text = f"hidden: store {me.at}, which was lost, begins epoch {epoch.number}"
            after = after._replace(broken=text)
        elif (at := lake.stores[me.at].restored_at) is not None:
            if any(each.number > at and each.store != me.at for each in lake.epochs):
                text = f"hidden: store {me.at}, which was filled after epoch {at}, begins epoch {epoch.number}"
                after = after._replace(broken=text)
            # As a person wanted it: what it holds counts.
            after = after._replace(due=frozenset(me.contents))
        yield f"begins epoch {epoch.number}", after, me._replace(pc="begun", contents=())
    elif there.store == me.at:
        # Of another replica of the store: the next look finds it.
        yield "finds its epoch begun", lake, Local(me.kind, me.number)
    else:
        yield f"is refused: epoch {there.number} is of another store", lake, me.ends()


def off(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Replicas start with the journal off, and then with the journal on (`end_epochs`)."""
    store = lake.stores[me.at]
    if (row := store.row) is None:
        return
    follows = row.follows
    if follows is None:
        follows = row.number if row.has_begun else row.number - 1
    if not rules.has("off keeps it"):
        follows = ANY
    after = lake.with_store(me.at, store._replace(row=EpochRow(follows=follows), restored_at=None))
    yield f"has its journal off, and may follow {follows}", after, me.ends()


def remake(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """A person makes a repository anew, in a store that has others, over the namespace of one that is deleted."""
    if me.pc == "begin":
        number = lake.newest.number
        yield f"finds epoch {number}", lake, me._replace(pc="shared", newest=number)
    elif me.pc == "shared":
        if lake.shared == me.at or not rules.has("store counts"):
            yield "finds that its store counts", lake, me._replace(pc="note", value=1)
        else:
            yield "finds that another store counts", lake, me._replace(pc="note")
    else:
        follows = me.newest if rules.has("made anew") else ANY
        row = EpochRow(follows=follows) if me.value else None
        made = lake.with_store(me.at, Store(row=row, restored_at=me.newest))
        after = made.writes(me.at, me.number, is_held=False)
        yield f"makes the repository, and may follow {follows if row else 'none'}", after, me.ends()


# ---- fills


def restore(lake: LakeState, me: Local, _rules: RebuildRules) -> Iterator[Step]:
    """A person fills a new store with a backup of the first state of the lake (`tarn backup restore`)."""
    if me.pc == "begin":
        number = lake.newest.number
        made = Store((1,), EpochRow(follows=number), is_open=False, restored_at=number)
        at = len(lake.stores)
        yield f"fills store {at}", lake.with_store(at, made), me._replace(pc="open", store=at)
    else:
        filled = lake.stores[me.store]._replace(is_open=True)
        yield f"opens store {me.store}", lake.with_store(me.store, filled), me.ends()


# ---- the rebuild


def rebuild(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Reads the bucket, fills a new store, begins an epoch, and opens (`tarn rebuild`)."""
    if me.pc == "begin":
        number = lake.newest.number
        yield f"finds epoch {number}", lake, me._replace(pc="walk", value=number, newest=number)
    elif me.pc == "walk":
        epoch = lake.epoch(me.value)
        assert epoch is not None
        if me.value == me.newest or not rules.has("newest's files"):
            me = me._replace(files=epoch.files)
        if (before := rules.before(epoch)) is not None:
            yield f"finds epoch {me.value} empty", lake, me._replace(value=before)
        else:
            yield f"lists the files of epoch {me.value}", lake, me._replace(pc="read")
    elif me.pc == "read":
        found = rules.read(lake, me.value)
        mine = me._replace(pc="fill", contents=found)
        yield f"reads epoch {me.value}: {found}", lake, mine
    elif me.pc == "fill":
        yield from _fill(lake, me, rules)
    elif me.pc == "begin epoch":
        yield from _begin_rebuilt(lake, me, rules)
    elif me.pc == "open":
        yield from _open(lake, me, rules)
    else:
        yield from _look_at_bucket(lake, me, rules)


def _fill(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Builds the listing, whose name follows from its contents, and fills a store."""
    listing = listing_of(me.contents)
    made = Store(me.contents, is_open=False, is_held=rules.has("held"), listing=listing)
    at = len(lake.stores)
    after = _built(lake.with_store(at, made), listing)
    pc = "begin epoch" if rules.has("opens last") else "open"
    yield f"fills store {at}", after, me._replace(pc=pc, store=at)


def _built(lake: LakeState, listing: int) -> LakeState:
    """Writes a listing, or makes the one that is there young."""
    return lake._replace(
        written=lake.written | {listing},
        deleted=lake.deleted - {listing},
        young=lake.young | {listing},
    )


def _begin_rebuilt(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Begins the epoch after the newest one that was there when the rebuild chose what to read."""
    number = me.newest + 1
    is_shared_first = rules.has("shared first")
    if lake.shared not in {NOBODY, me.store} and is_shared_first:
        after = lake._replace(shared=me.store)
        yield "begins the epoch of what belongs to no repository", after, me
        return
    if lake.epoch(number) is not None and rules.has("written once"):
        yield f"finds epoch {number} taken", lake, me.ends()
        return
    epoch = Epoch(number, me.store, me.number, me.value, me.contents)
    after = lake.with_epoch(epoch)
    pc = "list" if rules.has("list again") else "quarantine"
    if not rules.has("opens last"):
        pc = "end"
        row = EpochRow(number, me.number, has_begun=True)
        after = after.with_store(me.store, after.stores[me.store]._replace(row=row))
    mine = me.ends() if pc == "end" else me._replace(pc=pc, due=lake.due)
    if lake.shared != NOBODY and not is_shared_first:
        mine = me._replace(pc="begin shared", due=lake.due)
    yield f"begins epoch {number}", after, mine


def _look_at_bucket(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    """Looks, after the epoch has begun, what the processes of the lost store have done meanwhile."""
    listing = lake.stores[me.store].listing
    if me.pc == "begin shared":
        after = lake._replace(shared=me.store)
        yield "begins the epoch of what belongs to no repository", after, me._replace(pc="list")
    elif me.pc == "list":
        at = me.newest if rules.has("newest's files") else me.value
        epoch = lake.epoch(at)
        assert epoch is not None
        if epoch.files == me.files:
            yield f"finds the same files in epoch {at}", lake, me._replace(pc="quarantine")
        else:
            yield f"finds other files in epoch {at}, and does not open", lake, me.ends()
    elif me.pc == "quarantine":
        pc = "look" if listing not in lake.marked else "renew"
        yield "looks into the quarantines", lake, me._replace(pc=pc)
    elif me.pc == "renew":
        after = lake
        if rules.has("listings again"):
            if listing in lake.deleted:
                yield "finds its listing gone, and does not open", lake, me.ends()
                return
            after = _built(lake, listing)
        pc = "wait" if rules.has("listings wait") else "open"
        yield "writes its listing again", after, me._replace(pc=pc)
    elif me.pc == "wait":
        if listing not in lake.sent:
            yield "has waited", lake, me._replace(pc="look")
    elif listing in lake.deleted:
        yield "finds its listing gone, and does not open", lake, me.ends()
    else:
        yield "finds its listing", lake, me._replace(pc="open")


def _open(lake: LakeState, me: Local, rules: RebuildRules) -> Iterator[Step]:
    store, number = lake.stores[me.store], me.newest + 1
    row = EpochRow(number, me.number, has_begun=True) if rules.has("opens last") else None
    after = lake.with_store(me.store, store._replace(is_open=True, row=row))
    if lake.newest.store == me.store or row is None:
        # Otherwise another rebuild has come after it, and its first pass says so.
        others = frozenset(range(len(lake.stores))) - {me.store}
        after = after._replace(lost=lake.lost | others)
        if gone := me.due.difference(store.contents):
            text = (
                f"lost: {sorted(gone)} was in the bucket when the epoch of store {me.store} began"
            )
            after = after._replace(broken=text)
    else:
        after = after._replace(lost=lake.lost | {me.store})
    mine = me.ends() if row is not None else me._replace(pc="begin epoch")
    yield f"opens store {me.store}", after, mine


# ---- exploring

_PROCESSES: dict[str, Callable[[LakeState, Local, RebuildRules], Iterator[Step]]] = {
    "put": put,
    "release": release,
    "drain": drain,
    "sweep": sweep,
    "begin": begin,
    "off": off,
    "pass": pass_,
    "remake": remake,
    "restore": restore,
    "rebuild": rebuild,
}

_FILLS = {"rebuild", "restore"}
_CONTINUED = EpochRow(1, 0, has_begun=True)
_STARTS: dict[str, LakeState] = {
    # Store 0 has drained its first write.
    "drained": LakeState(
        (Store((1,), _CONTINUED),),
        (Epoch(1, 0, base=(1,)),),
        written=frozenset((1,)),
        shown=frozenset(((1,),)),
        due=frozenset((1,)),
    ),
    # Store 0 was restored from a backup, which is older than the epoch of the store before it.
    "restored": LakeState(
        (Store((1,), EpochRow(follows=1), restored_at=1),),
        (Epoch(1, NOBODY, base=(1, 2)),),
        written=frozenset((1, 2)),
        shown=frozenset(((1,), (1, 2))),
        due=frozenset((1, 2)),
    ),
    # The repository of store 0 is deleted; the store has others.
    "deleted": LakeState(
        (Store(),),
        (Epoch(1, 0, base=(1,)),),
        written=frozenset((1,)),
        shown=frozenset(((1,),)),
        shared=0,
    ),
    # Store 0 is lost, and replicas were started on an empty KV.
    "empty": LakeState(
        (Store((1,), _CONTINUED), Store()),
        (Epoch(1, 0, base=(1,)),),
        written=frozenset((1,)),
        shown=frozenset(((1,), ())),
        due=frozenset((1,)),
    ),
}

HOLDS: tuple[Scenario, ...] = (
    ("drained", "put 0", "drain 0", "rebuild", "put 1", "drain 1"),
    ("drained", "put 0", "sweep 0", "rebuild", "rebuild"),
    ("drained", "put 0", "put 0", "sweep 0", "rebuild"),
    ("drained", "put 0", "drain 0", "rebuild", "release 1", "sweep 1"),
    ("drained", "rebuild", "put 1", "release 1", "sweep 1", "rebuild"),
    ("restored", "begin 0", "begin 0", "rebuild"),
    ("restored", "begin 0", "put 0", "sweep 0", "rebuild"),
    ("restored", "begin 0", "put 0", "drain 0", "rebuild", "put 1", "drain 1"),
    ("empty", "put 1", "begin 1", "rebuild", "put 2", "drain 2"),
    ("drained", "put 0", "off 0", "begin 0", "rebuild"),
    ("drained", "restore", "restore", "begin 1", "begin 2", "put 1", "drain 1"),
    ("drained", "restore", "begin 1", "rebuild", "put 1"),
    ("deleted", "remake 0", "then begin 0", "rebuild"),
    ("deleted", "remake 0", "then begin 0", "put 0", "drain 0"),
    ("drained", "pass 0", "off 0", "begin 0", "put 0", "pass 0"),
    ("drained", "put 0", "sweep 0", "off 0", "begin 0"),
)
"""Scenarios in which every promise holds with all guards on."""

LONG: tuple[Scenario, ...] = (
    ("drained", "put 0", "drain 0", "sweep 0", "rebuild", "rebuild", "put 1", "drain 1"),
    ("drained", "rebuild", "put 1", "release 1", "sweep 1", "rebuild", "rebuild"),
    ("drained", "put 0", "drain 0", "rebuild", "release 1", "sweep 1", "rebuild"),
    ("drained", "put 0", "put 0", "sweep 0", "rebuild", "rebuild", "rebuild"),
    ("restored", "begin 0", "begin 0", "put 0", "drain 0", "rebuild", "rebuild"),
    ("restored", "begin 0", "begin 0", "put 0", "sweep 0", "rebuild", "put 1", "drain 1"),
    ("empty", "begin 1", "put 1", "drain 1", "rebuild", "rebuild", "put 2", "drain 2"),
)
"""Larger scenarios, explored as far as a bound."""

_BEGINS: Scenario = ("restored", "begin 0", "rebuild")
_TAKES_OVER: Scenario = ("restored", "begin 0", "begin 0", "rebuild")
_DELETES: Scenario = ("drained", "put 0", "sweep 0", "rebuild")
_DELETES_TWO: Scenario = ("drained", "put 0", "put 0", "sweep 0", "rebuild")
_REBUILT_DELETES: Scenario = ("drained", "put 0", "drain 0", "rebuild", "release 1", "sweep 1")
_ANEW: Scenario = ("deleted", "remake 0", "then begin 0", "rebuild")
_TWICE: Scenario = ("drained", "rebuild", "put 1", "release 1", "sweep 1", "rebuild")

MISSED_BY: dict[str, tuple[Scenario, str]] = {
    "written once": (_BEGINS, "hidden"),
    "one number": (_TAKES_OVER, "chain"),
    "store's half": ((*_TAKES_OVER, "put 0", "drain 0"), "both"),
    "new store": (("empty", "begin 1", "rebuild"), "lost"),
    "new repository": (("empty", "put 1", "begin 1", "rebuild"), "lost"),
    "made anew": (_ANEW, "hidden"),
    "store counts": (_ANEW, "hidden"),
    "shared first": (_ANEW, "hidden"),
    "row again": (("drained", "pass 0", "off 0", "begin 0", "put 0"), "lost"),
    "follows one": (("drained", "restore", "restore", "begin 1", "begin 2"), "hidden"),
    "off keeps it": (("drained", "off 0", "begin 0", "rebuild"), "hidden"),
    "newest alone": (("drained", "put 0", "drain 0", "rebuild", "put 1", "drain 1"), "invented"),
    "empty epoch": (_DELETES, "lost"),
    "number before": (_TWICE, "lost"),
    "look again": (_DELETES, "dangling"),
    "remembered last": (_DELETES_TWO, "dangling"),
    "file before": (_DELETES, "dangling"),
    "list again": (_DELETES, "lost"),
    "newest's files": (_TWICE, "lost"),
    "listings again": (("drained", "sweep 0", "rebuild", "rebuild"), "dangling"),
    "listings wait": (("drained", "sweep 0", "rebuild", "rebuild"), "dangling"),
    "opens last": (_DELETES, "dangling"),
    "held": (_REBUILT_DELETES, "dangling"),
    "release is an event": (_REBUILT_DELETES, "dangling"),
}
"""For each guard a scenario that detects its absence, and the promise that is broken first."""


def check(scenario: Scenario, *off: str, states_max: int = 1_000_000) -> Explored:
    """Explores a scenario with some guards off, until a promise is broken."""
    rules = RebuildRules(frozenset(off))
    return explore(_start(scenario), partial(_successors, rules, rules.broken), states_max)


def reach(scenario: Scenario, goal: Callable[[LakeState], bool]) -> Explored:
    """Explores a scenario with all guards on, until a state satisfies `goal` ("reached")."""

    def judge(lake: LakeState) -> str | None:
        return "reached" if goal(lake) else None

    return explore(_start(scenario), partial(_successors, RebuildRules(frozenset()), judge))


def _start(scenario: Scenario) -> State:
    start, *kinds = scenario
    # Writes have the numbers of their processes; 1 and 2 are there at the start.
    return _STARTS[start], tuple(Local(kind, number) for number, kind in enumerate(kinds, 3))


def _successors(
    rules: RebuildRules, judge: Callable[[LakeState], str | None], state: State
) -> Iterator[Next[State]]:
    lake, locals_ = state
    for at, me in enumerate(locals_):
        if me.pc == "end" or (me.kind.startswith("then ") and locals_[at - 1].pc != "end"):
            continue
        kind = me.kind.removeprefix("then ").split(" ")[0]
        if kind not in _FILLS and (me.at >= len(lake.stores) or not lake.stores[me.at].is_open):
            continue
        for label, after, mine in _PROCESSES[kind](lake, me, rules):
            now = (after, (*locals_[:at], mine, *locals_[at + 1 :]))
            yield f"{me.kind} ({me.number}) {label}", now, judge(after)


def _report(scenario: Scenario, off: str, found: Explored) -> None:
    name = f"{'+'.join(scenario):60} without {off:20}"
    result = found.broken or ("holds" if found.is_complete else "holds as far as it was explored")
    print(f"{name} {found.states:9,} states: {result}", flush=True)


def main(args: list[str]) -> int:
    """Prints the table, or one trace; 1 if a promise is broken with all guards, or none with one guard off."""
    guards = [each for each in args if each != "--long"]
    failed = False
    if not guards:
        for scenario in (*HOLDS, *(LONG if args else ())):
            found = check(scenario, states_max=300_000)
            failed |= found.broken is not None
            _report(scenario, "-", found)
            print(*(f"    {step}" for step in found.steps), sep="\n", end="")
    for guard in guards or MISSED_BY:
        scenario, _ = MISSED_BY[guard]
        found = check(scenario, guard)
        failed |= found.broken is None
        _report(scenario, guard, found)
        if guards:
            print(*(f"    {step}" for step in found.steps), sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
