"""`python -m chaos`: plays a run on a node of its own; see docs/design/chaos.md.

python -m chaos --seed 7 --seconds 600 [--workers 4] [--without GUARD] [-- further arguments of tarn up]
"""

# ruff: noqa: T201 - it is a command

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from chaos.installation import installation
from chaos.run import Plan, Run, play


def run_on_new_node(given: argparse.Namespace, folder: Path) -> Run:
    """Starts a node, plays a run on it, and stops it."""
    options = ("--workers", str(given.workers), *given.options)
    with installation(folder, options, without=given.without) as (target, nodes):
        plan = Plan(given.seed, given.seconds, given.hits, given.clients)
        return asyncio.run(play(plan, target, nodes))


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="greatest length of the run")
    parser.add_argument("--hits", type=int, default=0, help="number of hits after which it ends")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--without", default="", help="a guard of tests/sim/lake_guards.py")
    parser.add_argument("--keep", type=Path, help="folder for the data; by default it is removed")
    parser.add_argument("options", nargs="*", help="further arguments of tarn up")
    given = parser.parse_args()
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
        run = run_on_new_node(given, given.keep)
        log = [*(event.line() for event in run.events), *run.ledger.history.log]
        (given.keep / "history.log").write_text("\n".join(log))
    else:
        with tempfile.TemporaryDirectory(prefix="tarn-chaos-") as folder:
            run = run_on_new_node(given, Path(folder))
    for violation in run.violations[:5]:
        print(violation)
    print("\n".join(run.lines()))
    return 1 if run.violations else 0


if __name__ == "__main__":
    sys.exit(main())
