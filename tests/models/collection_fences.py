"""A model of the deletion of a range beside builds that find it again (docs/design/collection.md).

One range, named by its content. It was judged old and unreferenced; a sweep may delete it. A build of a listing needs
it: it finds the range there and makes it young, or writes it. Then a commit names it. Sweeps come one after the other;
a process may stop for good at any step, and its deletion may be applied late, but not after the time of its batch.

Promise in every state: *kept*: no published commit names a deleted range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.models.exploring import Explored, Next, explore

__all__ = ["FENCE_GUARDS", "FenceModel"]

FENCE_GUARDS = {
    "renews": "a build makes a range that it finds young again, before it relies on it",
    "fence": "a sweep begins a batch in the record before it deletes ranges",
    "looks again": "a sweep looks at the time of each range after its batch has begun",
    "checks the fence": "a build reads the record after its ranges are durable",
    "count": "the record counts batches; an ended batch is noticed, too",
    "count outlives runs": "a new run goes on with the count of the last one",
    "batch outlives its run": "a batch that was never ended stays open for its time",
    "build age": "a build that took too long is not published",
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """The range, the record, and the deletions that are sent and not applied."""

    exists: bool = True
    young: bool = False
    stamp: int = 0  # grows whenever the range is written or made young
    count: int = 1
    is_open: bool = False
    in_flight: bool = False
    published: bool = False
    late: bool = False  # more time has passed since the build began than a build may take


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep, or what is left of it."""

    pc: str = "begin"
    judged: bool = False
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """A build and its commit."""

    pc: str = "look"
    seen: tuple[int, bool] = (0, False)
    tries: int = 0


State = tuple[Bucket, Sweep, int, Build]
"""The bucket, the sweep that runs, the number of sweeps that follow, and the build."""


class FenceModel:
    """The protocol with some guards off.

    Args:
        off: guards that are off.
        sweeps: how many sweeps run, one after the other.
    """

    def __init__(self, *off: str, sweeps: int = 2) -> None:
        assert not set(off) - set(FENCE_GUARDS), off
        self._off = set(off)
        self._start: State = (Bucket(), Sweep(), sweeps - 1, Build())

    def check(self, states_max: int = 400_000) -> Explored:
        """Explores every order of steps."""
        return explore(self._start, self._next, states_max)

    def _has(self, guard: str) -> bool:
        return guard not in self._off

    def _next(self, state: State) -> Iterator[Next[State]]:
        bucket, sweep, left, build = state
        for label, after, mine, following in self._sweep(bucket, sweep, left):
            yield f"sweep: {label}", (after, mine, following, build), _broken(after)
        for label, after, made in self._build(bucket, build):
            yield f"build: {label}", (after, sweep, left, made), _broken(after)
        if bucket.in_flight:
            applied = replace(bucket, exists=False, in_flight=False)
            yield "a late deletion is applied", (applied, sweep, left, build), _broken(applied)
        if bucket.young:
            # A day: more than a build may take, and more than a deletion can be under way.
            aged = replace(bucket, young=False, late=True)
            if not bucket.in_flight:
                yield "a day passes", (aged, sweep, left, build), None

    # ---- sweeps

    def _sweep(
        self, bucket: Bucket, me: Sweep, left: int
    ) -> Iterator[tuple[str, Bucket, Sweep, int]]:
        if me.pc == "begin":
            if bucket.published:
                yield "finds the range referenced", bucket, replace(me, pc="end"), left
            else:
                began = bucket if self._has("count outlives runs") else replace(bucket, count=0)
                judged = replace(
                    me, pc="open", judged=not bucket.young and bucket.exists, stamp=bucket.stamp
                )
                yield "reads the roots", began, judged, left
        elif me.pc == "open":
            if not me.judged:
                yield "has nothing to delete", bucket, replace(me, pc="end"), left
            elif not self._has("fence"):
                yield "goes on", bucket, replace(me, pc="stat"), left
            elif not bucket.is_open:
                opened = replace(bucket, is_open=True, count=bucket.count + 1)
                yield "begins a batch", opened, replace(me, pc="stat"), left
        else:
            yield from self._batch(bucket, me, left)

    def _batch(
        self, bucket: Bucket, me: Sweep, left: int
    ) -> Iterator[tuple[str, Bucket, Sweep, int]]:
        if me.pc == "stat":
            is_kept = bucket.stamp != me.stamp and self._has("looks again")
            label = "finds the range younger than its cutoff" if is_kept else "finds the range old"
            yield label, bucket, replace(me, pc="close" if is_kept else "delete"), left
        elif me.pc == "delete":
            yield (
                "sends the deletion",
                replace(bucket, in_flight=True),
                replace(me, pc="wait"),
                left,
            )
        elif me.pc == "wait":
            if not bucket.in_flight:
                yield "has its answer", bucket, replace(me, pc="close"), left
            yield "dies", self._died(bucket), replace(me, pc="dead"), left
        elif me.pc == "close":
            yield "ends the batch", replace(bucket, is_open=False), replace(me, pc="end"), left
        elif me.pc == "dead" and bucket.is_open:
            if not bucket.in_flight:  # by time: then none can be
                closed = replace(bucket, is_open=False)
                yield "the time of its batch is over", closed, replace(me, pc="end"), left
        elif left:
            yield "the next one begins", bucket, Sweep(), left - 1

    def _died(self, bucket: Bucket) -> Bucket:
        kept = self._has("batch outlives its run")
        return bucket if kept else replace(bucket, is_open=False)

    # ---- the build

    def _build(self, bucket: Bucket, me: Build) -> Iterator[tuple[str, Bucket, Build]]:
        if me.pc == "look":
            seen = (bucket.count, bucket.is_open)
            yield (
                "reads the record",
                replace(bucket, late=False),
                replace(me, pc="range", seen=seen),
            )
        elif me.pc == "range":
            if not bucket.exists:
                made = replace(bucket, exists=True, young=True, stamp=bucket.stamp + 1)
                yield "writes the range", made, replace(me, pc="check")
            elif self._has("renews"):
                made = replace(bucket, young=True, stamp=bucket.stamp + 1)
                yield "makes the range young", made, replace(me, pc="check")
            else:
                yield "finds the range there", bucket, replace(me, pc="check")
        elif me.pc == "check":
            yield from self._check(bucket, me)
        elif me.pc == "publish":
            if bucket.late and self._has("build age"):
                yield "took too long", bucket, replace(me, pc="end")
            else:
                yield "publishes", replace(bucket, published=True), replace(me, pc="end")

    def _check(self, bucket: Bucket, me: Build) -> Iterator[tuple[str, Bucket, Build]]:
        if not self._has("checks the fence"):
            yield "goes on", bucket, replace(me, pc="publish")
        elif bucket.is_open:
            if me.tries == 0:
                yield "meets an open batch", bucket, replace(me, pc="look", tries=1)
            else:
                yield "gives up", bucket, replace(me, pc="end")
        elif self._is_same(bucket, me) or bucket.exists:
            yield "its ranges are there", bucket, replace(me, pc="publish")
        else:
            yield "misses a range", bucket, replace(me, pc="look", tries=1)

    def _is_same(self, bucket: Bucket, me: Build) -> bool:
        """Whether no batch was open, or began, between the two reads of the record."""
        if self._has("count"):
            return (bucket.count, bucket.is_open) == me.seen and not me.seen[1]
        return not bucket.is_open


def _broken(bucket: Bucket) -> str | None:
    return "kept" if bucket.published and not bucket.exists else None
