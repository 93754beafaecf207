"""The progress of a task, on standard error: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from tarn.core.clock import Clock
from tarn_cli.session import Session
from tarn_cli.terminal import text_column, write_line
from tarn_proto.graveler.v1.task_service_pb2 import Task

if TYPE_CHECKING:  # rich's progress bars are imported when one is shown
    from rich.progress import Progress

__all__ = ["TaskProgress"]

_LINE_SECONDS = 10.0


class TaskProgress:
    """Shows a task until it has ended. Silent with `--quiet` and `--json`."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._console = session.output.progress_console
        self._clock = clock
        self._begin = self._told = clock.monotonic()
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        """Shows nothing yet: most tasks end at once."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Removes the bar."""
        if self._progress is not None:
            self._progress.stop()

    def show(self, found: Task) -> None:
        """Shows how far a task is."""
        if self._console.quiet:
            return
        if self._console.is_terminal:
            self._show_bar(found)
        elif not found.HasField("end_time"):
            self._show_line(found)

    def _show_bar(self, found: Task) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        if self._progress is None:
            columns = (text_column(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Bar(*columns, console=self._console, transient=True)
            self._progress.add_task("", total=None)
            self._progress.start()
        self._progress.update(
            self._progress.task_ids[0],
            description=found.subject,
            completed=found.done_count,
            total=found.total_count or None,
        )

    def _show_line(self, found: Task) -> None:
        now = self._clock.monotonic()
        if now - self._told < _LINE_SECONDS:
            return
        self._told = now
        parts = f"{found.done_count}/{found.total_count}" if found.total_count else "begun"
        write_line(f"{found.subject}: {parts} after {now - self._begin:.0f} s", err=True)
