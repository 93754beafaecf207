"""The progress of a task, on standard error: a bar on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tarn.core.clock import Clock
from tarn_cli.session import Session
from tarn_cli.terminal import write_line
from tarn_proto.graveler.v1.task_service_pb2 import Task

if TYPE_CHECKING:  # bars are imported when one is shown
    from tarn_cli.bars import Bar

__all__ = ["TaskProgress"]

_LINE_SECONDS = 10.0


class TaskProgress:
    """Shows a task until it has ended. Silent with `--quiet` and `--json`."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._console = session.output.progress_console
        self._clock = clock
        self._begin = self._told = clock.monotonic()
        self._bar: Bar | None = None
        self._shown = ExitStack()

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
        self._shown.close()

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

        from tarn_cli.bars import bar

        if self._bar is None:
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = self._shown.enter_context(bar(self._console, "", *columns))
        self._bar.show(found.subject, found.done_count, found.total_count or None)

    def _show_line(self, found: Task) -> None:
        now = self._clock.monotonic()
        if now - self._told < _LINE_SECONDS:
            return
        self._told = now
        parts = f"{found.done_count}/{found.total_count}" if found.total_count else "begun"
        write_line(f"{found.subject}: {parts} after {now - self._begin:.0f} s", err=True)
