"""Progress bars on standard error, for a terminal only: a pipe gets no trace of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from tarn_cli.terminal import printable

__all__ = ["Bar", "PlainColumn", "bar"]


class PlainColumn(TextColumn):
    """Text of a bar that is shown as `printable` does, and holds no markup."""

    def render(self, task: Task) -> Text:
        """Returns the text of a task."""
        return Text(printable(self.text_format.format(task=task)), style="none")


class Bar:
    """One bar. Its methods may be called from any thread."""

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=None, extra=0)

    def show(self, what: str, done: int, total: int | None, extra: int = 0) -> None:
        """Shows how far the work is, a total that may be unknown again in a new phase, and `task.fields[extra]`."""
        # `Progress.update` takes a total of None for "as before".
        self._progress.tasks[0].total = total
        self._progress.update(self._task, description=what, completed=done, extra=extra)

    def add_total(self, count: int) -> None:
        """Adds to the total."""
        self._progress.update(self._task, total=(self._progress.tasks[0].total or 0) + count)

    def advance(self, count: int) -> None:
        """Adds to what is done."""
        self._progress.advance(self._task, count)


@contextmanager
def bar(console: Console, what: str, *columns: ProgressColumn) -> Iterator[Bar]:
    """Shows a bar, with `what` before the columns, during the block."""
    with Progress(
        PlainColumn("{task.description}"),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        yield Bar(progress, what)
