"""Runs many transfers concurrently: bounded, with a progress bar, until a failure that is not of one file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TransferSpeedColumn

from tarn_cli.bars import bar
from tarn_cli.objects.local_files import FileRefusedError

__all__ = ["Advance", "Tally", "Transfer", "bytes_bar", "count_bar", "run_all"]

Advance = Callable[[int], None]
"""Advances a progress bar by a number of bytes or items; may be called from any thread."""


_REFUSED_MAX = 1000


@dataclass(slots=True)
class Tally:
    """What became of many transfers; may be changed from any thread.

    Attributes:
        done: files that arrived.
        refused_count: files that cannot be transferred.
        refused: the first of them, with the reason.
    """

    done: int = 0
    refused_count: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def arrived(self) -> None:
        """Counts a file."""
        with self._lock:
            self.done += 1

    def refuse(self, name: str, reason: str) -> None:
        """Counts a file that cannot be transferred."""
        with self._lock:
            self.refused_count += 1
            if len(self.refused) < _REFUSED_MAX:
                self.refused.append((name, reason))


@dataclass(frozen=True, slots=True)
class Transfer:
    """The transfer of one file.

    Attributes:
        name: of the file or object, for people.
        size: bytes, for the progress bar.
        start: transfers the file; its argument reports transferred bytes. Raises FileRefusedError.
    """

    name: str
    size: int
    start: Callable[[Advance], None]

    def bound(self, advance: Advance, tally: Tally) -> Callable[[], int]:
        """The work of this transfer, which reports to `advance` and `tally`, and returns 1 for a file that arrived."""

        def work() -> int:
            try:
                self.start(advance)
            except FileRefusedError as error:
                tally.refuse(self.name, str(error))
                return 0
            tally.arrived()
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
    with bar(console, what, BarColumn(), DownloadColumn(), TransferSpeedColumn()) as shown:
        yield shown.add_total, shown.advance


@contextmanager
def count_bar(console: Console, what: str) -> Iterator[Advance]:
    """A progress bar of items whose total is unknown; yields a function that reports progress."""
    with bar(console, what, MofNCompleteColumn()) as shown:
        yield shown.advance
