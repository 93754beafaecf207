"""Guards of the protocol that a test can disable, to show that the test bed detects their absence.

A guard is a small piece of production code without which a promise breaks. It is disabled from outside,
by replacing one function with a weaker one for the length of a run; production code has no flag for it.
The list for graveler is in `tests/sim/lake_guards.py`: this package lies below the services and must not
import them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.support.faults.modes import Mode

__all__ = ["Guard", "Weakening", "switched_off"]


@dataclass(frozen=True, slots=True)
class Weakening:
    """One attribute of a class or module, and its replacement while the guard is disabled."""

    owner: object
    name: str
    instead: object


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard.

    Attributes:
        name: argument of `make mutate GUARD=…`.
        rule: rule of docs/design/protocol.md that the guard belongs to.
        protects: invariants of `tests.support.check.checker`; one of them must fail without the guard.
        without: the behaviour without the guard.
        weakenings: replacements that disable it.
        runs: number of seeds within which its absence must be detected.
        mode: of the runs that detect its absence.
    """

    name: str
    rule: str
    protects: str
    without: str
    weakenings: Sequence[Weakening]
    runs: int = 40
    mode: Mode = Mode.DRAWN


@contextmanager
def switched_off(guard: Guard) -> Iterator[None]:
    """Runs a block with a guard disabled."""
    with ExitStack() as stack:
        for weakening in guard.weakenings:
            stack.enter_context(_replaced(weakening))
        yield


@contextmanager
def _replaced(weakening: Weakening) -> Iterator[None]:
    # The raw attribute: `getattr` would unwrap static methods and put back something else.
    before = vars(weakening.owner)[weakening.name]
    setattr(weakening.owner, weakening.name, weakening.instead)
    try:
        yield
    finally:
        setattr(weakening.owner, weakening.name, before)
