"""Breadth-first exploration of the states of a model.

A model is a start state and a function that gives the next states. Each step is atomic, and every order of
steps is tried, so "not broken" is a proof within the bounds of the scenario, and a trace is a shortest one.
Cost: O(states) of memory and time, some 30,000 to 60,000 states a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Explored", "Next", "explore"]

S = TypeVar("S", bound=Hashable)

Next = tuple[str, S, str | None]
"""A step: its description, the state after it, and the promise that it breaks (None: none)."""


@dataclass(frozen=True, slots=True)
class Explored:
    """The result of an exploration.

    Attributes:
        broken: the first promise that is broken; None if none is.
        states: number of different states.
        steps: the steps from the start to the broken promise.
        is_complete: whether every state was examined; False if the bound was reached first.
    """

    broken: str | None
    states: int
    steps: tuple[str, ...]
    is_complete: bool


def explore(
    start: S, successors: Callable[[S], Iterable[Next[S]]], states_max: int = 1_000_000
) -> Explored:
    """Visits every state that can be reached, nearest first, until a promise is broken.

    Args:
        start: the first state.
        successors: returns all possible steps of a state.
        states_max: greatest number of different states.
    """
    came_from: dict[S, tuple[S, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for label, after, broken in successors(state):
            if broken is not None:
                steps = (*_steps_to(came_from, state), label)
                return Explored(broken, len(came_from), steps, is_complete=False)
            if after not in came_from:
                came_from[after] = (state, label)
                queue.append(after)
        if len(came_from) > states_max:
            return Explored(None, len(came_from), (), is_complete=False)
    return Explored(None, len(came_from), (), is_complete=True)


def _steps_to(came_from: dict[S, tuple[S, str] | None], state: S) -> list[str]:
    steps: list[str] = []
    while (link := came_from[state]) is not None:
        state, label = link
        steps.append(label)
    return steps[::-1]
