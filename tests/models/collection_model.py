"""An explicit-state model of garbage collection (docs/design/collection.md), in two parts.

`collection_addresses.py`: blocks of objects beside writes, copies, uploads, commits, compactions, resets and readers.
`collection_fences.py`: ranges and metaranges, which are named by their content, beside builds that find them again.

    python -m tests.models.collection_model            the scenarios, then each guard off
    python -m tests.models.collection_model NAME       one guard off, with its trace
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys

from tests.models.collection_addresses import ADDRESS_GUARDS, AddressModel, StoreState
from tests.models.collection_fences import (
    FENCE_GUARDS,
    FENCE_SCENARIO_OF,
    FENCE_SCENARIOS,
    FenceModel,
)
from tests.models.exploring import Explored

__all__ = ["GUARDS", "SCENARIOS", "explored"]

GUARDS = ADDRESS_GUARDS | FENCE_GUARDS

_STAGED = StoreState(age=2, rows=(2, 0, 0, 0))

SCENARIOS: dict[str, tuple[StoreState, tuple[str, ...]]] = {
    "a put and a commit": (StoreState(), ("put", "commit")),
    "a put whose address is from the future, and a commit": (
        StoreState(is_ahead=True),
        ("put", "commit"),
    ),
    "a put, a commit and a compaction": (StoreState(), ("put", "commit", "compact")),
    "a copy, a reset and a commit": (StoreState(rows=(2, 0, 0, 0)), ("copy", "reset", "commit")),
    "an upload, a commit and a compaction": (
        StoreState(age=2, upload=True),
        ("complete", "commit", "compact"),
    ),
    "a staged row, a commit and a compaction": (_STAGED, ("commit", "compact")),
    "a staged row, two compactions and a commit": (_STAGED, ("compact", "compact", "commit")),
    "a sealed row, a commit and a reader": (
        StoreState(age=2, staging=1, sealed=(0,), rows=(2, 0, 0, 0)),
        ("commit", "read"),
    ),
    "a committed object, a reset and a branch onto the commit": (
        StoreState(age=2, commits=2, head=2),
        ("reset", "copy_committed", "read"),
    ),
    "a staged row, a reset and a reader": (_STAGED, ("reset", "read", "commit")),
}
"""The store at the beginning, and what runs beside the collector."""

_SCENARIO_OF = {
    "age": "a put and a commit",
    "not ahead": "a put whose address is from the future, and a commit",
    "age after durable": "a put and a commit",
    "cutoff above limit": "a put and a commit",
    "uploads first": "an upload, a commit and a compaction",
    "sealed tokens": "a sealed row, a commit and a reader",
    "compacted after tokens": "a staged row, a commit and a compaction",
    "commits last": "a staged row, a commit and a compaction",
    "all commits": "a committed object, a reset and a branch onto the commit",
    "grace": "a staged row, a reset and a reader",
}
_ORDER = {"uploads first", "sealed tokens", "compacted after tokens", "commits last"}
"""Guards of the order in which roots are read. The second look hides a mistake of the first, so one look is tried."""


def explored(guard: str) -> Explored:
    """Explores the scenario of a guard, with the guard off."""
    if guard in FENCE_GUARDS:
        scenario = FENCE_SCENARIO_OF.get(guard, next(iter(FENCE_SCENARIOS)))
        return FenceModel(scenario, guard).check()
    lake, processes = SCENARIOS[_SCENARIO_OF[guard]]
    return AddressModel(lake, processes, guard, looks=1 if guard in _ORDER else 2).check()


def main(names: list[str]) -> int:
    """Prints the results; 1 if a promise is broken with all guards, or none with one guard off."""
    failed = False
    if not names:
        for name, (lake, processes) in SCENARIOS.items():
            for looks in (1, 2):
                found = AddressModel(lake, processes, looks=looks).check()
                failed |= found.broken is not None
                print(f"{name}, {looks} looks: {found.states:,} states: {found.broken or 'holds'}")
        for name in FENCE_SCENARIOS:
            found = FenceModel(name).check()
            failed |= found.broken is not None
            print(f"{name}: {found.states:,} states: {found.broken or 'holds'}")
    for guard in names or GUARDS:
        found = explored(guard)
        failed |= found.broken is None
        print(f"\nwithout {guard!r} ({GUARDS[guard]}): {found.broken or 'nothing is broken'}")
        for step in found.steps:
            print(f"    {step}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
