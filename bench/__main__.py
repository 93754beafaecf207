"""`make bench-parts`: runs the benchmarks of the parts one after the other; each prints its own table.

`bench.load` (`make bench`) measures the whole system.

    python -m bench [kv|block|rpc|commit|merge|reset|compaction|log|deletes|queue_listing|gc|sweep|telemetry|reads|
        views|heavy|address_age|overload ...]

Figures of a shared machine drift: compare ratios within one run, not the numbers of two runs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = (
    "kv",
    "block",
    "rpc",
    "commit",
    "merge",
    "reset",
    "compaction",
    "log",
    "deletes",
    "queue_listing",
    "gc",
    "sweep",
    "retention",
    "telemetry",
    "reads",
    "views",
    "heavy",
    "address_age",
    "overload",
)
LIMIT_S = 600


def main() -> int:
    """Runs the named parts, or all; returns 1 if one failed."""
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := sorted(set(wanted) - set(PARTS)):
        print(f"no benchmark {', '.join(unknown)}; there are {', '.join(PARTS)}")
        return 2
    failed = False
    for part in wanted:
        print(f"\n== {part}", flush=True)
        script = [sys.executable, "-m", f"bench.{part}"]
        done = subprocess.run(script, timeout=LIMIT_S, check=False, cwd=ROOT)
        failed = failed or done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
