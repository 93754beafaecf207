"""Runs a coroutine in its caller's step up to its first wait, and awaits the rest only if there is one.

A read that is answered from memory, or by a store in a file, never waits. Whatever a wait needs (a deadline, a
cancellation that is told apart) is then not made.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

__all__ = ["next_step", "rest_of"]

T = TypeVar("T")


@types.coroutine
def rest_of(work: Coroutine[Any, Any, T], waited: object) -> Generator[Any, Any, T]:
    """Awaits the rest of a coroutine that was begun by hand, as `await` would have gone on.

        try:
            waited = work.send(None)
        except StopIteration as done:
            answer = done.value
        else:
            answer = await rest_of(work, waited)

    Args:
        work: the coroutine; its first step is done.
        waited: what that step yielded: what it waits for.
    """
    while True:
        try:
            yield waited
        except BaseException as error:  # noqa: BLE001 - a cancellation, which belongs to the coroutine
            try:
                waited = work.throw(error)
            except StopIteration as done:
                found: T = done.value
                return found
        else:
            answer: T = yield from work
            return answer


@types.coroutine
def next_step(
    work: Coroutine[Any, Any, T], waited: object
) -> Generator[Any, Any, tuple[T, None] | tuple[None, object]]:
    """Awaits what a coroutine that was begun by hand waits for, and runs its next step.

    Args:
        work: the coroutine.
        waited: what its last step yielded.

    Returns:
        Its answer and None; or None and what it waits for now.
    """
    try:
        yield waited
    except BaseException as error:  # noqa: BLE001 - a cancellation, which belongs to the coroutine
        thrown: BaseException | None = error
    else:
        thrown = None
    try:
        return None, work.send(None) if thrown is None else work.throw(thrown)
    except StopIteration as done:
        return done.value, None
