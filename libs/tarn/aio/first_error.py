"""Picks one error of an exception group.

A `TaskGroup` raises every failure of its tasks as an `ExceptionGroup`. Callers of a port expect a single error:
`except TarnError` does not see an error inside a group. So a port's method that spawns tasks must collapse the
group. (Starlette and trio also call it collapsing exception groups.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collapse_error_groups", "first_error"]


def first_error(error: BaseException, prefer: type[BaseException] = BaseException) -> BaseException:
    """Returns the error itself, or the first leaf of a group; groups may be nested.

    Args:
        error: the error; a group holds the failures in the order in which they happened.
        prefer: the first leaf of this type, if there is one, is preferred to the others.
    """
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, prefer)), leaves[0])


@contextmanager
def collapse_error_groups(prefer: type[BaseException] = BaseException) -> Iterator[None]:
    """Raises the first error instead of a group that the block raises (see `first_error`).

    The other errors are dropped: their tasks were cancelled because of the first one, or failed concurrently. Other
    exceptions pass unchanged, in particular a cancellation. Put it around the `async with` of the group.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        raise first_error(group, prefer) from None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
