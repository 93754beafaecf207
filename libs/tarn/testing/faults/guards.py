"""Guards of the protocol as things that can be switched off: a test bed that never fails proves nothing.

A guard is a small piece of production code without which a promise breaks. It is switched off from outside,
by putting something weaker in the place of one function for the length of a run; production code has no
flag for it. The list for graveler is in `tests/sim/lake_guards.py`: this package lies below the services
and must not know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

__all__ = ["Guard", "Weakening", "switched_off"]


@dataclass(frozen=True, slots=True)
class Weakening:
    """One attribute of a class or module, and what stands there while the guard is off."""

    owner: object
    name: str
    instead: object


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard.

    Attributes:
        name: what `make mutate GUARD=…` takes.
        rule: of docs/design/protocol.md.
        protects: invariants of `tarn.testing.check.checker`; one of them must fail without it.
        without: what is done instead.
        weakenings: how it is switched off.
        runs: seeds within which its absence must be seen.
    """

    name: str
    rule: str
    protects: str
    without: str
    weakenings: Sequence[Weakening]
    runs: int = 40


@contextmanager
def switched_off(guard: Guard) -> Iterator[None]:
    """Runs a block without a guard."""
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
