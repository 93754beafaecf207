"""Runs many transfers concurrently: bounded, with a progress bar, stopped by the first failure."""

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
    TransferSpeedColumn,
)

from tarn_cli.terminal import text_column

__all__ = ["Advance", "Transfer", "bytes_bar", "count_bar", "run_all"]

Advance = Callable[[int], None]
"""Advances a progress bar by a number of bytes or items; may be called from any thread."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of one file.

    Attributes:
        size: bytes, for the progress bar.
        start: transfers the file; its argument reports transferred bytes.
    """

    size: int
    start: Callable[[Advance], None]

    def bound(self, advance: Advance) -> Callable[[], int]:
        """The work of this transfer, which reports to `advance` and returns 1, for one file."""

        def work() -> int:
            self.start(advance)
            return 1

        return work


def run_all(work: Iterable[Callable[[], int]], workers: int) -> int:
    """Runs the work in threads and returns the sum of the results.

    `work` may be endless: at most two items per thread are taken ahead. After the first failure no
    further work begins; the failure is raised when the running work has ended.
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
    """A progress bar of bytes: yields one function that adds to the total and one that reports progress."""
    columns = (
        text_column(),
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
    """A progress bar of items whose total is unknown; yields a function that reports progress."""
    columns = (text_column(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda count: progress.advance(task, count)
