"""An explicit-state model of the branch protocol (docs/design/protocol.md, "The numbered rules").

One branch, one key. Every request to the KV is one atomic step; all orders of steps are explored
breadth-first, so a trace is a shortest one. Records that processes begin with may be as old as they like,
tokens are dropped at any time that rule 5 allows, and a compare-and-set may lose its answer, applied or
waiting to be applied later.

    python -m tests.models.branch_model            scenarios and guards
    python -m tests.models.branch_model --wide     larger scenarios, too: minutes, gigabytes
    python -m tests.models.branch_model GUARD      one guard off, with its trace

What must hold in every state:
- *lost*: what the branch shows, and what each read returns, is an acknowledged write or one that was not over
  before it; a commit holds such a value for what was acknowledged before the commit began (I1, I3, I4);
- *two winners*: no two writers that both need the key to be absent are acknowledged (I6);
- *refused*: nothing is there of a write that was told that surely nothing was done (I2).

Not modelled: several keys, pages of a listing, incarnations, a branch's deletion, partial reset, replicas of
Cassandra (`libs/tarn/testing/sim/kv_cassandra.py` has those).
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from tests.models import branch_commits, branch_writes
from tests.models.branch_state import GUARDS, Lake, Local, Rules, Step, applied_late, dropped
from tests.models.exploring import Explored, Next, explore

__all__ = ["GUARDS", "HOLDS", "MISSED_BY", "WIDE", "Scenario", "check"]

State = tuple[Lake, tuple[Local, ...]]

_PROCESSES: dict[str, Callable[[Lake, Local, Rules], Iterator[Step]]] = {
    "put": branch_writes.put,
    "read": branch_writes.read,
    "delete": branch_writes.delete,
    "create": branch_writes.create,
    "commit": branch_commits.commit,
    "compact": branch_commits.compact,
    "reset": branch_commits.reset,
    "merge": branch_commits.merge,
    "merge other": branch_commits.merge,
    "merge early": branch_commits.merge,
}

Scenario = tuple[str, ...]
"""What each process does. A trailing `lost` is no process: one answer of a compare-and-set may be lost."""

HOLDS: tuple[Scenario, ...] = (
    ("put", "put", "commit"),
    ("put", "commit", "commit"),
    ("put", "commit", "read"),
    ("put", "delete", "commit"),
    ("create", "create", "commit"),
    ("put", "compact", "commit"),
    ("put", "commit", "reset"),
    ("put", "compact", "reset"),
    ("put", "compact", "merge other"),
    ("put", "merge", "commit"),
    ("create", "merge", "commit"),
    ("put", "put", "reset", "commit"),
    ("create", "create", "merge"),
    ("put", "commit", "commit", "lost"),
    ("put", "create", "commit", "lost"),
    ("put", "compact", "commit", "lost"),
)
"""Scenarios in which every promise holds with all guards on."""

WIDE: tuple[Scenario, ...] = (
    ("put", "put", "commit", "commit"),
    ("put", "put", "commit", "read"),
    ("put", "delete", "commit", "read"),
    ("put", "delete", "compact", "commit"),
    ("create", "create", "commit", "commit"),
    ("put", "compact", "compact", "commit"),
    ("put", "compact", "commit", "read"),
    ("create", "create", "merge", "commit"),
    ("put", "put", "commit", "commit", "lost"),
)
"""Larger ones; as far as memory goes."""

MISSED_BY: dict[str, Scenario] = {
    "re-check": ("put", "commit"),
    "issued after": ("put", "commit"),
    "read compares": ("put", "commit", "read"),
    "waits D": ("put", "commit", "read"),
    "delete verifies": ("put", "delete", "commit"),
    "delete compares all": ("put", "delete", "commit"),
    "sealed marker": ("put", "delete", "commit"),
    "delete marks": ("put", "delete", "commit"),
    "condition verifies": ("create", "create", "commit"),
    "condition compares": ("create", "create"),
    "own row": ("create", "commit"),
    "beneath own row": ("create", "merge", "commit"),
    "written is unknown": ("create", "put", "commit"),
    "seals": ("put", "commit"),
    "finish compares": ("put", "commit", "commit"),
    "no overlap rule": ("put", "commit", "commit"),
    "looks": ("put", "commit", "commit"),
    "compaction compares": ("put", "put", "compact", "commit"),
    "commit builds on base": ("put", "compact", "commit"),
    "reset clears base": ("put", "compact", "reset"),
    "reset compares": ("put", "commit", "reset"),
    "base is dirty": ("put", "compact", "merge other"),
    "merge seals": ("create", "merge"),
    "merge keeps rows": ("put", "merge other"),
    "settles": ("put", "commit", "lost"),
    "late is pending": ("put", "commit", "lost"),
    "recognises": ("put", "commit", "lost"),
}
"""For each guard a scenario that misses it."""


def check(scenario: Scenario, *off: str, tries: int = 2, states_max: int = 1_000_000) -> Explored:
    """Explores a scenario with some guards off."""
    kinds = tuple(kind for kind in scenario if kind != "lost")
    rules = Rules(kinds, frozenset(off), tries)

    def successors(state: State) -> Iterator[Next[State]]:
        lake, locals_ = state
        for label, after in (*dropped(lake, rules, locals_), *applied_late(lake)):
            yield label, (after, locals_), rules.broken(after)
        for at, me in enumerate(locals_):
            if me.pc == "end":
                continue
            for label, after, then, broken in _PROCESSES[me.kind](lake, me, rules):
                new = (after, (*locals_[:at], then, *locals_[at + 1 :]))
                yield f"{me.kind} {me.number} {label}", new, broken or rules.broken(after)

    locals_ = tuple(Local(kind, number) for number, kind in enumerate(kinds, 1))
    lake = Lake(losable=len(scenario) - len(kinds))
    return explore((lake, locals_), successors, states_max)


def _report(scenario: Scenario, off: str, found: Explored) -> None:
    name = f"{'+'.join(scenario):34} without {off:22}"
    result = found.broken or ("holds" if found.is_complete else "holds as far as it was explored")
    print(f"{name} {found.states:9,} states: {result}", flush=True)


def main() -> int:
    """Prints the table, or one trace."""
    args = sys.argv[1:]
    guards = [each for each in args if each != "--wide"]
    if not guards:
        for scenario in (*HOLDS, *(WIDE if args else ())):
            _report(scenario, "-", check(scenario, states_max=10_000_000))
    for guard in guards or MISSED_BY:
        found = check(MISSED_BY[guard], guard)
        _report(MISSED_BY[guard], guard, found)
        if guards:
            print(*(f"    {step}" for step in found.steps), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
