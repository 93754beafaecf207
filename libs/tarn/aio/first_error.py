"""One error out of a group.

A `TaskGroup` raises every failure of its tasks as an `ExceptionGroup`. Callers of a port know one error at a
time: `except TarnError` does not see one inside a group. So whoever spawns inside of a port's method
collapses the group on its way out. (Starlette and trio call it the same: collapsing exception groups.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collapse_error_groups", "first_error"]


def first_error(error: BaseException, prefer: type[BaseException] = BaseException) -> BaseException:
    """The error itself, or of a group the first leaf; groups may be nested.

    Args:
        error: tasks that failed are in it in the order of their failures.
        prefer: the first leaf of this type, if there is one, goes before the others.
    """
    leaves = list(_leaves(error))
    return next((leaf for leaf in leaves if isinstance(leaf, prefer)), leaves[0])


@contextmanager
def collapse_error_groups(prefer: type[BaseException] = BaseException) -> Iterator[None]:
    """Raises the first error instead of a group that the block raises (see `first_error`).

    The others are dropped: those tasks were cancelled on account of the first one, or failed beside it. What is
    no group passes unchanged, a cancellation above all. Goes around the `async with` of the group.
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
