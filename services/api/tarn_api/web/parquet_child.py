"""The program that reads a Parquet file of a user: in a process of its own, which may end in any way.

Whoever may write an object chooses every byte of it. Pyarrow ends the process if some metadata are damaged, and a file
of some kilobytes can stand for gigabytes. So the process limits itself before it reads a byte: its memory, its time,
what it writes and the files that it opens. It gets no variable of the service, and knows neither names nor secrets.

    python -I -m tarn_api.web.parquet_child {rows|about}

It reads the file from its standard input: the whole file for `rows`; for `about` the magic number and the footer are
enough. It writes one JSON document (`tarn_api.web.parquet.Facts`).
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # imported within the limits
    import pyarrow.parquet as pq

__all__ = ["COLUMNS_MAX", "OUTPUT_BYTES_MAX", "ROWS_MAX", "main"]

ROWS_MAX: Final = 100
COLUMNS_MAX: Final = 50
OUTPUT_BYTES_MAX: Final = 8 * 1024 * 1024
_INPUT_BYTES_MAX: Final = 16 * 1024 * 1024
_CELL_MAX: Final = 200
_GROUPS_MAX: Final = 1024
_LIMITS: Final = {
    resource.RLIMIT_AS: 2 * 1024**3,  # also what is only reserved, and libraries
    resource.RLIMIT_DATA: 512 * 1024**2,
    resource.RLIMIT_CPU: 5,
    resource.RLIMIT_FSIZE: OUTPUT_BYTES_MAX,
    resource.RLIMIT_CORE: 0,
}


def main() -> None:
    """Reads the standard input, and writes what it says."""
    for limit, wanted in _LIMITS.items():
        _, hard = resource.getrlimit(limit)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (most, most))
    os.nice(10)
    body = sys.stdin.buffer.read(_INPUT_BYTES_MAX)
    found = _read(body, with_rows=sys.argv[1:] == ["rows"])
    sys.stdout.write(json.dumps(found))


def _read(body: bytes, *, with_rows: bool) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(1)
    file = pq.ParquetFile(pa.BufferReader(body), pre_buffer=False)
    about = file.metadata
    found: dict[str, Any] = {
        "rows": about.num_rows,
        "groups": about.num_row_groups,
        "writer": _cell(about.created_by),
        "column_count": about.num_columns,
        "columns": [_column(file, index) for index in range(min(about.num_columns, COLUMNS_MAX))],
    }
    names = file.schema_arrow.names[:COLUMNS_MAX]
    if with_rows and about.num_row_groups and len(set(names)) == len(names):
        batches = file.iter_batches(ROWS_MAX, columns=names, use_threads=False)
        batch = next(iter(batches), None)
        if batch is not None:
            found["head"] = [_cell(name) for name in batch.schema.names[:COLUMNS_MAX]]
            columns = [
                [_cell(value.as_py()) for value in column] for column in batch.columns[:COLUMNS_MAX]
            ]
            found["first"] = list(zip(*columns, strict=True))
    return found


def _column(file: pq.ParquetFile, index: int) -> dict[str, Any]:
    """Returns the name and the type of a column, and what the statistics of all row groups say together."""
    column = file.schema.column(index)
    kind = str(column.logical_type)
    least: list[Any] = []
    most: list[Any] = []
    nulls: int | None = 0
    about = file.metadata
    for group in range(min(about.num_row_groups, _GROUPS_MAX)):
        statistics = about.row_group(group).column(index).statistics
        if statistics is None or not statistics.has_null_count or nulls is None:
            nulls = None
        else:
            nulls += statistics.null_count
        if statistics is not None and statistics.has_min_max:
            least.append(statistics.min)
            most.append(statistics.max)
    is_whole = len(least) == about.num_row_groups > 0
    return {
        "name": _cell(column.path),
        "kind": _cell(column.physical_type if kind == "None" else kind),
        "nulls": None if about.num_row_groups > _GROUPS_MAX else nulls,
        "least": _cell(min(least)) if is_whole else "",
        "most": _cell(max(most)) if is_whole else "",
    }


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _CELL_MAX else text[:_CELL_MAX] + "…"


if __name__ == "__main__":
    main()
