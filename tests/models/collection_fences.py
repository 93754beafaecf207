"""A model of the deletion of a range beside builds that find it again (docs/design/collection.md).

One range, named by its content. Nothing refers to it; a sweep may delete it. Builds of listings need it: each finds it
there and makes it young, or writes it. A *commit* makes it a root by its row. A *compaction* pins its listing in the
branch record. Both look for sweeps after that, and publish. *Over* is a commit that takes the range over from the
compacted listing on which it builds, and does not look.

Sweeps come one after the other; a process may stop for good at any step, or go on after a day. A deletion may be
applied late, but not after the time of its batch. A pin may be pushed out of the record by newer ones.

Promise in every state: *kept*: no published commit and no compacted listing of the branch names a deleted range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.models.exploring import Explored, Next, explore

__all__ = ["FENCE_GUARDS", "FENCE_SCENARIOS", "FENCE_SCENARIO_OF", "FenceModel"]

FENCE_GUARDS = {
    "renews": "a build makes a range that it finds young again, before it relies on it",
    "fence": "a sweep begins a batch in the record before it deletes ranges",
    "looks again": "a sweep looks at the time of each range after its batch has begun",
    "checks the fence": "a build reads the record after its ranges are durable",
    "count": "the record counts batches; an ended batch is noticed, too",
    "count outlives runs": "a new run goes on with the counts of the last one",
    "batch outlives its run": "a batch that was never ended stays open for its time",
    "root before the last look": "a build is a root before it reads the record for the last time",
    "counts sweeps": "the record counts sweeps; a build that one began beside is made again",
    "begins before roots": "a sweep begins in the record before it reads the roots",
    "pins are roots": "a sweep reads the pins of the branch records",
    "publishes pinned": "a compacted listing is published only while it is pinned",
    "own pin": "its pin is one that this build made",
}

FENCE_SCENARIOS: dict[str, tuple[int, tuple[str, ...]]] = {
    "a commit beside three sweeps": (3, ("commit",)),
    "a compaction beside three sweeps": (3, ("compact",)),
    "two compactions beside a sweep": (1, ("compact", "compact")),
    "a compaction and a commit beside a sweep": (1, ("compact", "commit")),
    "a compaction and a commit over it beside two sweeps": (2, ("compact", "over")),
}
"""How many sweeps run, and which builds run beside them."""

FENCE_SCENARIO_OF = {
    "pins are roots": "a compaction beside three sweeps",
    "publishes pinned": "a compaction beside three sweeps",
    "own pin": "two compactions beside a sweep",
}
"""Scenarios of guards; of the others, the first scenario."""


@dataclass(frozen=True, slots=True)
class Store:
    """The range, its roots, the collection record, and the deletions that are sent and not applied."""

    exists: bool = True
    young: bool = False
    stamp: int = 0  # grows whenever the range is written or made young
    row: bool = False
    published: bool = False
    pins: tuple[bool, ...] = ()  # of each build
    listed: bool = False  # by the compacted listing of the branch
    sweeps: int = 0
    count: int = 1
    is_open: bool = False
    in_flight: bool = False


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep, or what is left of it."""

    pc: str = "begin"
    old: bool = False
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """A build and its publication."""

    kind: str
    pc: str = "look"
    seen: tuple[int, bool, int] = (0, False, 0)
    tries: int = 0


State = tuple[Store, Sweep, int, tuple[Build, ...]]
"""The stores, the sweep that runs, the number of sweeps that follow, and the builds."""

_Steps = Iterator[tuple[str, Store, Build]]


class FenceModel:
    """The protocol with some guards off.

    Args:
        off: guards that are off.
        scenario: one of `FENCE_SCENARIOS`.
    """

    def __init__(self, scenario: str, *off: str) -> None:
        assert not set(off) - set(FENCE_GUARDS), off
        self._off = set(off)
        sweeps, kinds = FENCE_SCENARIOS[scenario]
        store = Store(pins=(False,) * len(kinds))
        self._start: State = (store, Sweep(), sweeps - 1, tuple(map(Build, kinds)))

    def check(self, states_max: int = 600_000) -> Explored:
        """Explores every order of steps."""
        return explore(self._start, self._next, states_max)

    def _has(self, guard: str) -> bool:
        return guard not in self._off

    def _next(self, state: State) -> Iterator[Next[State]]:
        store, sweep, left, builds = state
        for label, after, mine, following in self._sweep(store, sweep, left):
            yield f"sweep: {label}", (after, mine, following, builds), _broken(after)
        for at, build in enumerate(builds):
            for label, after, made in self._build(store, build, at):
                changed = (*builds[:at], made, *builds[at + 1 :])
                name = f"{build.kind} {at}: {label}"
                yield name, (after, sweep, left, changed), _broken(after)
        for label, after in _elsewhere(store):
            yield label, (after, sweep, left, builds), _broken(after)

    # ---- sweeps

    def _sweep(self, store: Store, me: Sweep, left: int) -> Iterator[tuple[str, Store, Sweep, int]]:
        if me.pc == "begin":
            # All that is old now is judged: the cutoff is that of an earlier mark.
            judged = replace(me, old=store.exists and not store.young, stamp=store.stamp)
            if self._has("begins before roots"):
                yield "begins", self._begun(store), replace(judged, pc="branches"), left
            else:
                yield "goes on", store, replace(judged, pc="branches"), left
        elif me.pc == "branches":
            pinned = any(store.pins) and self._has("pins are roots")
            if pinned or store.listed:
                yield "finds the range in the branch record", store, replace(me, pc="end"), left
            else:
                yield "reads the branch record", store, replace(me, pc="commits"), left
        elif me.pc == "commits":
            if store.row or not me.old:
                yield "has nothing to delete", store, replace(me, pc="end"), left
            else:
                following = "open" if self._has("begins before roots") else "late"
                yield "reads the commits", store, replace(me, pc=following), left
        elif me.pc == "late":
            yield "begins", self._begun(store), replace(me, pc="open"), left
        elif me.pc == "open":
            if not self._has("fence"):
                yield "goes on", store, replace(me, pc="stat"), left
            elif not store.is_open:
                opened = replace(store, is_open=True, count=store.count + 1)
                yield "begins a batch", opened, replace(me, pc="stat"), left
        else:
            yield from self._batch(store, me, left)

    def _begun(self, store: Store) -> Store:
        if self._has("count outlives runs"):
            return replace(store, sweeps=store.sweeps + 1)
        return replace(store, sweeps=1, count=0)

    def _batch(self, store: Store, me: Sweep, left: int) -> Iterator[tuple[str, Store, Sweep, int]]:
        if me.pc == "stat":
            is_kept = store.stamp != me.stamp and self._has("looks again")
            label = "finds the range younger than its cutoff" if is_kept else "finds the range old"
            yield label, store, replace(me, pc="close" if is_kept else "delete"), left
        elif me.pc == "delete":
            sent = replace(store, in_flight=True)
            yield "sends the deletion", sent, replace(me, pc="wait"), left
        elif me.pc == "wait":
            if not store.in_flight:
                yield "has its answer", store, replace(me, pc="close"), left
            kept = self._has("batch outlives its run")
            died = store if kept else replace(store, is_open=False)
            yield "dies", died, replace(me, pc="dead"), left
        elif me.pc == "close":
            yield "ends the batch", replace(store, is_open=False), replace(me, pc="end"), left
        elif me.pc == "dead" and store.is_open:
            if not store.in_flight:  # by time: then none can be
                closed = replace(store, is_open=False)
                yield "the time of its batch is over", closed, replace(me, pc="end"), left
        elif left:
            yield "the next one begins", store, Sweep(), left - 1

    # ---- builds

    def _build(self, store: Store, me: Build, at: int) -> _Steps:
        if me.kind == "over":
            yield from _build_over(store, me)
        elif me.pc == "look":
            seen = (store.count, store.is_open, store.sweeps)
            yield "reads the record", store, replace(me, pc="range", seen=seen)
        elif me.pc == "range":
            following = "root" if self._has("root before the last look") else "check"
            young = replace(store, exists=True, young=True, stamp=store.stamp + 1)
            if not store.exists:
                yield "writes the range", young, replace(me, pc=following)
            elif self._has("renews"):
                yield "makes the range young", young, replace(me, pc=following)
            else:
                yield "finds the range there", store, replace(me, pc=following)
        elif me.pc == "root":
            following = "check" if self._has("root before the last look") else "publish"
            if me.kind == "commit":
                yield "writes its row", replace(store, row=True), replace(me, pc=following)
            else:
                pins = (*store.pins[:at], True, *store.pins[at + 1 :])
                yield "pins its listing", replace(store, pins=pins), replace(me, pc=following)
        elif me.pc == "publish":
            yield from self._publish(store, me, at)
        else:
            yield from self._check(store, me)

    def _check(self, store: Store, me: Build) -> _Steps:
        done = "publish" if self._has("root before the last look") else "root"
        if me.pc == "check":
            count, was_open, sweeps = me.seen
            is_same = (store.count == count and not was_open) or not self._has("count")
            if not self._has("checks the fence"):
                yield "goes on", store, replace(me, pc=done)
            elif store.sweeps != sweeps and self._has("counts sweeps"):
                yield "a sweep began", store, _again(me)
            elif is_same and not store.is_open:
                yield "was not disturbed", store, replace(me, pc=done)
            else:
                yield "meets a batch", store, replace(me, pc="wait")
        elif me.pc == "wait":
            if not store.is_open:
                yield "the batch has ended", store, replace(me, pc="stat")
        elif me.pc == "stat":
            after = replace(me, pc=done) if store.exists else _again(me)
            yield "looks at its range", store, after

    def _publish(self, store: Store, me: Build, at: int) -> _Steps:
        if me.kind == "commit":
            yield "publishes", replace(store, published=True), replace(me, pc="end")
            return
        is_pinned = store.pins[at] if self._has("own pin") else any(store.pins)
        if is_pinned or not self._has("publishes pinned"):
            listed = replace(store, listed=True, pins=(False,) * len(store.pins))
            yield "publishes", listed, replace(me, pc="end")
        else:
            yield "is not pinned any more", store, _again(me)


def _build_over(store: Store, me: Build) -> _Steps:
    """A commit over the compacted listing: its compare-and-set succeeds only while the record has that listing."""
    if me.pc == "look":
        if store.listed:
            yield "reads the compacted listing", store, replace(me, pc="row")
    elif me.pc == "row":
        yield "writes its row", replace(store, row=True), replace(me, pc="publish")
    elif me.pc == "publish":
        if store.listed:
            taken = replace(store, listed=False, published=True, pins=(False,) * len(store.pins))
            yield "publishes", taken, replace(me, pc="end")
        else:
            yield "finds another record", store, replace(me, pc="end")


def _again(me: Build) -> Build:
    return replace(me, pc="look" if me.tries == 0 else "end", tries=1)


def _elsewhere(store: Store) -> Iterator[tuple[str, Store]]:
    """Steps of time, the stores and other operations."""
    if store.in_flight:
        yield "a late deletion is applied", replace(store, exists=False, in_flight=False)
    elif store.young:  # a deletion is not under way for so long
        yield "a day passes", replace(store, young=False)
    if any(store.pins):
        yield "newer pins push others out", replace(store, pins=(False,) * len(store.pins))
    if store.listed:
        yield "a reset clears the compacted listing", replace(store, listed=False)


def _broken(store: Store) -> str | None:
    return "kept" if (store.published or store.listed) and not store.exists else None
