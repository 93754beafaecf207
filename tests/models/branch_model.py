"""An explicit-state model of the branch protocol (docs/design/protocol.md, "The numbered rules").

One branch, one key. Every request to the KV is one atomic step; all orders of steps are explored
breadth-first, so a trace is a shortest one. Processes may begin with records of any age, tokens are dropped
at any time that rule 5 allows, and a compare-and-set may lose its answer, applied or waiting to be applied
later.

    python -m tests.models.branch_model            scenarios and guards
    python -m tests.models.branch_model --wide     larger scenarios, too: minutes, gigabytes
    python -m tests.models.branch_model GUARD      one guard off, with its trace

    Promises in every state:
    - *lost*: the value of the branch, and of each read, comes from a write that did not end before an acknowledged
      write began; a commit holds such a value for the writes acknowledged before it began (I1, I3, I4);
    - *two winners*: no two writers that both need the key to be absent are acknowledged, no two deletes of one value,
      and no conditional write over an acknowledged value that it has not judged (I6);
    - *refused*: no write has an effect whose client was told that surely nothing was done (I2).

Not modelled: several keys, pages of a listing, incarnations, a branch's deletion, replicas of
Cassandra (`tests/support/sim/kv_cassandra.py` has those).
"""

# ruff: noqa: T201 - it is a command

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from tests.models import branch_commits, branch_resets, branch_writes
from tests.models.branch_state import GUARDS, Local, Rules, Step, StoreState, applied_late, dropped
from tests.models.exploring import Explored, Next, explore

__all__ = ["GUARDS", "HOLDS", "MISSED_BY", "WIDE", "Scenario", "check", "reach"]

State = tuple[StoreState, tuple[Local, ...]]

_PROCESSES: dict[str, Callable[[StoreState, Local, Rules], Iterator[Step]]] = {
    "put": branch_writes.put,
    "read": branch_writes.read,
    "delete": branch_writes.delete,
    "create": branch_writes.create,
    "delete if": branch_writes.delete_if,
    "commit": branch_commits.commit,
    "lazy commit": branch_commits.commit_lazily,
    "compact": branch_commits.compact,
    "reset": branch_resets.reset,
    "part": branch_resets.reset_part,
    "part other": branch_resets.reset_part,
    "erase": branch_resets.erase,
    "then erase": branch_resets.erase,
    "merge": branch_commits.merge,
    "merge other": branch_commits.merge,
    "merge early": branch_commits.merge_early,
    "then put": branch_writes.put,
    "then delete": branch_writes.delete,
    "then create": branch_writes.create,
    "then delete if": branch_writes.delete_if,
    "then commit": branch_commits.commit,
    "then compact": branch_commits.compact,
}

Scenario = tuple[str, ...]
"""The operation of each process; `then` begins it only after the process before it has ended.

A trailing `lost` is not a process: it lets one answer of a compare-and-set be lost.
"""

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
    ("merge", "merge other", "commit"),
    ("put", "then delete", "commit", "merge other"),
    ("put", "merge", "reset"),
    ("put", "merge", "lost"),
    ("put", "part", "commit"),
    ("put", "part other", "commit"),
    ("put", "compact", "part"),
    ("put", "part other", "part"),
    ("put", "part other", "merge other"),
    ("create", "part", "part other"),
    ("put", "part other", "lost"),
    ("put", "then commit", "then delete", "then commit", "part other"),
    ("put", "then commit", "then delete", "then compact", "then create", "part"),
    ("put", "erase", "commit"),
    ("put", "then put", "erase"),
    ("put", "delete", "erase"),
    ("put", "compact", "erase"),
    ("put", "erase", "part"),
    ("put", "then erase", "merge"),
    ("put", "erase", "merge"),
    ("put", "then commit", "then put", "then erase", "compact"),
    ("put", "erase", "lost"),
    ("put", "then commit", "then delete", "then commit", "erase"),
    ("put", "put", "compact"),
    ("put", "delete", "compact"),
    ("put", "compact", "read"),
    ("put", "compact", "compact"),
    ("put", "compact", "lost"),
    ("create", "create", "compact"),
    ("create", "compact", "merge"),
    ("put", "then compact", "then delete", "then create", "compact"),
    ("put", "then commit", "then delete", "then commit", "compact"),
    ("put", "then commit", "then delete", "then compact", "then create", "compact"),
    ("put", "then commit", "commit", "then compact"),
    ("put", "compact", "lazy commit"),
    ("put", "then compact", "then put", "then compact", "lazy commit"),
    ("put", "delete if", "commit"),
    ("put", "then delete if", "delete if"),
    ("put", "then delete if", "put"),
    ("put", "then delete if", "create"),
    ("create", "delete if", "create"),
    ("put", "then delete if", "compact"),
    ("put", "delete if", "merge"),
    ("put", "then delete if", "part"),
    ("put", "then commit", "then delete if", "delete if"),
    ("put", "then delete if", "commit", "lost"),
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
    ("put", "put", "part other", "commit"),
    ("put", "delete", "part other", "commit"),
    ("put", "commit", "commit", "compact"),
    ("put", "then commit", "then delete", "create", "compact"),
    ("put", "delete", "create", "compact"),
    ("put", "then delete if", "delete if", "commit"),
    ("put", "then delete if", "put", "commit"),
    ("put", "then delete if", "create", "compact"),
)
"""Larger scenarios, up to the available memory."""

MISSED_BY: dict[str, tuple[Scenario, str]] = {
    "re-check": (("put", "commit"), "lost"),
    "issued after": (("put", "commit"), "lost"),
    "read compares": (("put", "commit", "read"), "stale"),
    "waits D": (("put", "commit", "read"), "stale"),
    "delete verifies": (("put", "delete", "commit"), "lost"),
    "delete compares all": (("put", "delete", "commit"), "lost"),
    "sealed tombstone": (("put", "delete", "commit"), "lost"),
    "delete marks": (("put", "delete", "commit"), "lost"),
    "condition verifies": (("create", "create", "commit"), "two winners"),
    "condition compares": (("create", "create"), "two winners"),
    "own row": (("create", "commit"), "lost"),
    "moved is unknown": (("create", "merge", "commit"), "two winners"),
    "written is unknown": (("create", "put", "commit"), "refused"),
    "delete-if compares": (("put", "then delete if", "put"), "two winners"),
    "delete-if names its operation": (("put", "then delete if", "then delete if"), "two winners"),
    "delete-if own tombstone": (("put", "then delete if", "commit"), "lost"),
    "seals": (("put", "commit"), "lost"),
    "finish compares": (("put", "commit", "commit"), "lost"),
    "no overlap rule": (("put", "commit", "commit"), "commit"),
    "looks": (("put", "commit", "commit"), "lost"),
    "compaction seals": (("put", "compact"), "lost"),
    "compaction compares": (
        ("put", "then commit", "then delete", "then commit", "compact"),
        "lost",
    ),
    "compaction gives up": (
        ("put", "then commit", "then delete", "then commit", "compact"),
        "lost",
    ),
    "compaction keeps seals": (("put", "compact", "commit"), "lost"),
    "base is read": (("put", "then compact", "then create"), "two winners"),
    "taken by commit": (("put", "then commit", "commit", "then compact"), "commit"),
    "commit builds on base": (("put", "compact", "commit"), "commit"),
    "commit compares base": (
        ("put", "then compact", "then put", "then compact", "lazy commit"),
        "lost",
    ),
    "seal keeps base": (("put", "then compact", "commit"), "lost"),
    "reset clears base": (("put", "compact", "reset"), "reset"),
    "reset compares": (("put", "commit", "reset"), "reset"),
    "part restores the commit": (("put", "compact", "part"), "reset"),
    "part keeps the rest": (("put", "part other"), "lost"),
    "part compares": (
        ("put", "then commit", "then delete", "then commit", "part other"),
        "lost",
    ),
    "part computes again": (
        ("put", "then commit", "then delete", "then commit", "part other"),
        "lost",
    ),
    "part seals": (
        ("put", "then commit", "then delete", "then compact", "then create", "part"),
        "two winners",
    ),
    "part keeps rows": (("put", "part other"), "lost"),
    "erase judges": (("put", "then put", "erase"), "lost"),
    "erase has no tombstone": (("put", "erase", "merge"), "lost"),
    "erase excepts the commit": (("put", "then commit", "erase"), "erased"),
    "base is dirty": (("put", "compact", "merge other"), "lost"),
    "merge seals": (("create", "merge"), "two winners"),
    "merge keeps rows": (("put", "merge other"), "lost"),
    "merge judges again": (("put", "then delete", "commit", "merge other"), "lost"),
    "settles": (("put", "commit", "lost"), "commit"),
    "late is pending": (("put", "commit", "lost"), "refused"),
    "recognises": (("put", "commit", "lost"), "refused"),
}
"""For each guard a scenario that detects its absence, and the promise that is broken first."""


def check(scenario: Scenario, *off: str, tries: int = 2, states_max: int = 1_000_000) -> Explored:
    """Explores a scenario with some guards off, until a promise is broken."""
    rules = _rules(scenario, frozenset(off), tries)
    return explore(_start(scenario), partial(_successors, rules, rules.broken), states_max)


def reach(scenario: Scenario, goal: Callable[[StoreState], bool]) -> Explored:
    """Explores a scenario with all guards on, until a state satisfies `goal` ("reached")."""

    def reached(lake: StoreState) -> str | None:
        return "reached" if goal(lake) else None

    rules = _rules(scenario, frozenset(), 2)
    return explore(_start(scenario), partial(_successors, rules, reached))


def _rules(scenario: Scenario, off: frozenset[str], tries: int) -> Rules:
    return Rules(tuple(kind for kind in scenario if kind != "lost"), off, tries)


def _start(scenario: Scenario) -> State:
    kinds = [kind for kind in scenario if kind != "lost"]
    locals_ = tuple(Local(kind, number) for number, kind in enumerate(kinds, 1))
    return StoreState(losable=len(scenario) - len(kinds)), locals_


def _successors(
    rules: Rules, judge: Callable[[StoreState], str | None], state: State
) -> Iterator[Next[State]]:
    """Yields all steps of all processes, of the cleaner, and of requests that wait at coordinators."""
    lake, locals_ = state
    for label, after in (*dropped(lake, rules, locals_), *applied_late(lake)):
        yield label, (after, locals_), judge(after)
    for at, me in enumerate(locals_):
        waits = me.kind.startswith("then ") and me.pc == "begin" and locals_[at - 1].pc != "end"
        if me.pc == "end" or waits:
            continue
        for label, after, then, broken in _PROCESSES[me.kind](lake, me, rules):
            new = (after, (*locals_[:at], then, *locals_[at + 1 :]))
            yield f"{me.kind} {me.number} {label}", new, broken or judge(after)


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
        scenario, _ = MISSED_BY[guard]
        found = check(scenario, guard)
        _report(scenario, guard, found)
        if guards:
            print(*(f"    {step}" for step in found.steps), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
