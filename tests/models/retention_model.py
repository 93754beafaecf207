"""A model of commits that expire beside operations that bring their entries back (docs/design/retention.md, rule 14).

One old commit with one block. A branch is at it, and moves on at any time; then nothing but its row keeps it.
Collections come one after the other: each plans, writes expired rows, reads the roots, and deletes the block if no root
names it. Operations bring the entry back: a *ref* is created at the commit, a branch is *moved* to it, or a *merge*
takes the entry into a new commit. A process may stop for any time between two of its steps, or for good. A pin may be
pushed out of its record.

Promise in every state: *kept*: the branch, the new ref, the moved branch and the published merge have their block.

    python -m tests.models.retention_model
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.models.exploring import Explored, Next, explore

__all__ = ["GUARDS", "SCENARIOS", "RetentionModel", "explored"]

GUARDS = {
    "rows before roots": "a collection writes expired rows before it reads the roots",
    "looks": "an operation looks for the expired row of the commit that it takes entries from",
    "look after root": "it looks after it has made them a root",
    "pending refs are roots": "a ref that is being created is a root",
    "pins are roots": "a pin is a root",
    "publishes pinned": "a branch moves only while its pin is in the record",
    "new commits are roots": "the row of a commit that no branch has yet is a root",
    "published only": "a commit that was the head of no branch does not expire",
    "refs are roots": "a ref keeps the objects of its commit, whatever rows say",
}

SCENARIOS: dict[str, tuple[str, ...]] = {
    "a new ref": ("ref",),
    "a move": ("move",),
    "a merge": ("merge",),
    "a ref and a move": ("ref", "move"),
    "a merge and a ref": ("merge", "ref"),
}
"""The operations beside two collections."""

_SCENARIO_OF = {
    "pins are roots": "a move",
    "publishes pinned": "a move",
    "new commits are roots": "a merge",
    "published only": "a merge",
}


@dataclass(frozen=True, slots=True)
class Store:
    """The block, and what names it.

    Attributes:
        head: the branch is at the old commit.
        expired: the old commit has an expired row.
        new_expired: the same of the commit of a merge.
    """

    exists: bool = True
    head: bool = True
    expired: bool = False
    new_expired: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. Its root is a pending ref, a pin, or the row of its commit."""

    kind: str
    pc: str = "root"
    has_root: bool = False
    is_live: bool = False


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection: what it has planned and found."""

    pc: str = "plan"
    left: int = 1
    old: bool = False
    new: bool = False
    found: bool = False


State = tuple[Store, Collection, tuple[Operation, ...]]


class RetentionModel:
    """The protocol with some guards off.

    Args:
        kinds: the operations.
        off: guards that are off.
    """

    def __init__(self, kinds: tuple[str, ...], *off: str) -> None:
        assert not set(off) - set(GUARDS), off
        self._off = set(off)
        first = "root" if self._has("look after root") else "look"
        self._order = (
            ("plan", "write", "refs", "rows", "delete")
            if self._has("rows before roots")
            else ("plan", "refs", "write", "rows", "delete")
        )
        operations = tuple(Operation(kind, first) for kind in kinds)
        self._start: State = (Store(), Collection(), operations)

    def check(self, states_max: int = 400_000) -> Explored:
        """Explores every order of steps."""
        return explore(self._start, self._next, states_max)

    def _has(self, guard: str) -> bool:
        return guard not in self._off

    def _next(self, state: State) -> Iterator[Next[State]]:
        store, collection, operations = state
        if store.head:
            yield "the branch moves on", (replace(store, head=False), collection, operations), None
        if collection.pc != "end":
            label, after, now = self._collect(store, collection, operations)
            yield f"collection: {label}", (after, now, operations), _broken(after, operations)
        for number, me in enumerate(operations):
            for label, mine in self._operate(store, me):
                all_now = (*operations[:number], mine, *operations[number + 1 :])
                after_all = (store, collection, all_now)
                yield f"{me.kind}: {label}", after_all, _broken(store, all_now)

    # ---- a collection

    def _collect(
        self, store: Store, me: Collection, operations: tuple[Operation, ...]
    ) -> tuple[str, Store, Collection]:
        following = dict(zip(self._order, (*self._order[1:], "plan"), strict=True))[me.pc]
        now = replace(me, pc=following)
        match me.pc:
            case "plan":
                named = store.head or any(
                    each.is_live and each.kind != "merge" for each in operations
                )
                new = not self._has("published only") and any(
                    each.kind == "merge" and each.has_root and not each.is_live
                    for each in operations
                )
                return "plans", store, replace(now, old=not named, new=new, found=False)
            case "write":
                after = replace(
                    store,
                    expired=store.expired or me.old,
                    new_expired=store.new_expired or me.new,
                )
                return "writes expired rows", after, now
            case "refs":
                found = me.found or self._refs_name(store, operations)
                return "reads refs", store, replace(now, found=found)
            case "rows":
                found = me.found or not store.expired or self._rows_name(store, operations)
                return "reads commits", store, replace(now, found=found)
            case _:
                if not me.left:
                    now = replace(now, pc="end")
                now = replace(now, left=max(me.left - 1, 0))
                return "deletes", store if me.found else replace(store, exists=False), now

    def _refs_name(self, store: Store, operations: tuple[Operation, ...]) -> bool:
        counts = self._has("refs are roots") or not store.expired
        if counts and (store.head or any(each.is_live for each in operations)):
            return True
        for each in operations:
            guard = {"ref": "pending refs are roots", "move": "pins are roots"}.get(each.kind)
            if guard and each.has_root and self._has(guard):
                return True
        return False

    def _rows_name(self, store: Store, operations: tuple[Operation, ...]) -> bool:
        return (
            self._has("new commits are roots")
            and not store.new_expired
            and any(each.kind == "merge" and each.has_root for each in operations)
        )

    # ---- an operation

    def _operate(self, store: Store, me: Operation) -> Iterator[tuple[str, Operation]]:
        before = not self._has("look after root")
        if me.kind == "move" and me.has_root and not me.is_live:
            yield "the pin is pushed out", replace(me, has_root=False)
        match me.pc:
            case "root":
                yield "makes a root", replace(me, has_root=True, pc="publish" if before else "look")
            case "look":
                if store.expired and self._has("looks"):
                    yield "is refused", replace(me, pc="end", has_root=me.kind == "merge")
                else:
                    yield "looks", replace(me, pc="root" if before else "publish")
            case "publish":
                if me.kind == "move" and not me.has_root and self._has("publishes pinned"):
                    yield "has lost its pin", replace(me, pc="end")
                else:
                    root = me.kind == "merge"
                    yield "publishes", replace(me, pc="end", is_live=True, has_root=root)
            case _:
                return


def _broken(store: Store, operations: tuple[Operation, ...]) -> str | None:
    is_named = store.head or any(each.is_live for each in operations)
    return "kept" if is_named and not store.exists else None


def explored(guard: str) -> Explored:
    """Explores the scenario of a guard, with the guard off."""
    kinds = SCENARIOS[_SCENARIO_OF.get(guard, "a new ref")]
    return RetentionModel(kinds, guard).check()


def main() -> int:
    """Prints the results; 1 if the promise is broken with all guards, or kept with one guard off."""
    failed = False
    for name, kinds in SCENARIOS.items():
        found = RetentionModel(kinds).check()
        failed |= found.broken is not None
        print(f"{name}: {found.states:,} states: {found.broken or 'holds'}")
    for guard, what in GUARDS.items():
        found = explored(guard)
        failed |= found.broken is None
        print(f"without {guard!r} ({what}): {found.broken or 'HOLDS'}: {'; '.join(found.steps)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
