"""The output of a command: tables for people or JSON for programs, on standard output.

JSON is one document: an object for one record, an array of objects for several. Progress and remarks go
to standard error, so that output can be piped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from rich.table import Table

from tarn.core.moments import iso_seconds
from tarn_cli.terminal import cell, write_json, write_line, write_lines

__all__ = ["Output", "Record", "shown_time"]

Record = Mapping[str, object]
"""One record, with field names that are the same in every command."""


def shown_time(timestamp: Timestamp) -> str:
    """A time in RFC 3339, in UTC, to the second."""
    return iso_seconds(timestamp.seconds * 1_000_000)


class Output:
    """Prints the results of one command.

    Args:
        as_json: print JSON.
        quiet: print no remarks and no progress.
    """

    def __init__(self, *, as_json: bool, quiet: bool = False) -> None:
        self.as_json = as_json
        self.quiet = quiet

    @property
    def progress_console(self) -> Console:
        """Console for progress bars, on standard error; silent with `quiet` and `as_json`."""
        return Console(stderr=True, quiet=self.quiet or self.as_json)

    def one(self, record: Record, text: str | Sequence[str] | None = None) -> None:
        """Prints one record: as JSON, else as `text` (a line, or several) if given, else as a list of its fields."""
        if self.as_json:
            write_json(record)
        elif text is not None:
            write_lines([text] if isinstance(text, str) else text)
        else:
            width = max((len(name) for name in record), default=0)
            for name, value in record.items():
                write_line(f"{name:<{width}}  {_shown(value)}")

    def many(self, records: Iterable[Record], columns: Sequence[str], empty: str = "none") -> None:
        """Prints records of one kind: as a table of `columns`, or with every field as JSON."""
        rows = list(records)
        if self.as_json:
            write_json(rows)
            return
        if not rows:
            self.remark(empty)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            numeric = all(isinstance(row.get(column), int) for row in rows)
            table.add_column(
                column.replace("_", " "), justify="right" if numeric else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(cell(_shown(row.get(column, ""))) for column in columns))
        # A pipe has no width: rows must not be folded there.
        console = Console(soft_wrap=True, highlight=False, markup=False)
        if not console.is_terminal:
            console.width = 10_000
        console.print(table)

    def remark(self, text: str) -> None:
        """Prints a remark on standard error, for people; silent with `quiet` and `as_json`."""
        if not (self.quiet or self.as_json):
            write_line(text, err=True)


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return str(value)
