"""Runs one case in its own process: `python -m bench.load.one CASE FOLDER ROWS SCALE full|quick`.

It appends its rows to the file ROWS, one JSON line each, as soon as they are measured.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from bench.load.cases import CASES
from bench.load.table import Row
from bench.load.trial import Trial


def main() -> None:
    """Runs the case; a failure prints a traceback on stderr."""
    name, folder, rows, scale, mode = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    with Path(rows).open("a") as out:

        def emit(row: Row) -> None:
            print(json.dumps(asdict(row)), file=out, flush=True)
            rate = "" if row.per_second is None else f"{row.per_second:,.0f}/s "
            p50 = "" if row.p50_ms is None else f"median {row.p50_ms:.3g} ms "
            ratio = "" if row.ratio is None else f"ratio {row.ratio:.3g} "
            text = f"  {row.what} ({row.form}): {rate}{p50}{ratio}{row.note}"
            print(text, flush=True)

        case.run(Trial(name, Path(folder), float(scale), mode == "quick", emit))


if __name__ == "__main__":
    main()
