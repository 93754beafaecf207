"""Many transfers at once: bounded, with a progress bar, stopped by the first failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TransferSpeedColumn,
)

__all__ = ["Advance", "Transfer", "bytes_bar", "count_bar", "run_all"]

Advance = Callable[[int], None]
"""Moves a bar on by some bytes or things; may be called from any thread."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file on its way.

    Attributes:
        size: bytes, for the bar.
        start: does it; is given how to report bytes.
    """

    size: int
    start: Callable[[Advance], None]

    def bound(self, advance: Advance) -> Callable[[], int]:
        """The work, reporting to `advance`; returns 1, for one file."""

        def work() -> int:
            self.start(advance)
            return 1

        return work


def run_all(work: Iterable[Callable[[], int]], workers: int) -> int:
    """Runs the work in threads and returns the sum of what it returns.

    `work` may be endless: no more than a few per thread are taken ahead. The first failure is raised
    after what had begun has ended; nothing new is begun.
    """
    done = 0
    pending: set[Future[int]] = set()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for each in work:
                if len(pending) >= 2 * workers:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    done += _settled(finished)
                pending.add(pool.submit(each))
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                done += _settled(finished)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return done


def _settled(finished: set[Future[int]]) -> int:
    return sum(future.result() for future in finished)


@contextmanager
def bytes_bar(console: Console, what: str) -> Iterator[tuple[Advance, Advance]]:
    """A bar of bytes: yields how to announce more, and how to report some as done."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=0)
        total = 0

        def announce(size: int) -> None:
            nonlocal total
            total += size
            progress.update(task, total=total)

        yield announce, lambda size: progress.advance(task, size)


@contextmanager
def count_bar(console: Console, what: str) -> Iterator[Advance]:
    """A bar of things, of which nobody knows how many there are."""
    columns = (TextColumn("{task.description}"), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.advance(task, count)
