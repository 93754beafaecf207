"""`python -m tests.sim.losses`: plays seeds whose metadata store is lost and rebuilt (`tests.sim.rebuilding`).

python -m tests.sim.losses --seeds 20 [--first 0]           on both stores
python -m tests.sim.losses --seeds 1 --first 13 --store sqlite --log    one run, with the logs of both worlds
"""

# ruff: noqa: T201 - it is a command

import argparse
import gc
import multiprocessing
import sys

from tests.sim.rebuilding import loss_plan, loss_run
from tests.support.faults.modes import Mode

_STORES = ("sqlite", "cassandra")
_PROCESSES = 2
_Job = tuple[int, str, Mode, bool]


def _play(job: _Job) -> tuple[_Job, list[str], list[str]]:
    seed, store, mode, is_logged = job
    run = loss_run(loss_plan(seed, store, mode))
    log = [*run.first.history.log, *run.second.history.log] if is_logged else []
    return job, run.violations, log


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.losses", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--store", choices=_STORES, help="default: both")
    parser.add_argument("--collect", action="store_true", help="with garbage collections")
    parser.add_argument("--log", action="store_true", help="print what happened")
    given = parser.parse_args()
    stores = [given.store] if given.store else _STORES
    seeds = range(given.first, given.first + given.seeds)
    mode = Mode.COLLECT if given.collect else Mode.DRAWN
    jobs = [(seed, store, mode, given.log) for seed in seeds for store in stores]
    broken = 0
    with multiprocessing.get_context("spawn").Pool(_PROCESSES, gc.freeze) as pool:
        for (seed, store, *_), violations, log in pool.imap_unordered(_play, jobs):
            broken += bool(violations)
            told = [f"loss {seed} on {store} broke a promise"] if violations else []
            for line in (*log, *told, *violations):
                print(line, flush=True)
    print(f"{len(jobs)} losses of a store, {broken} broke a promise")
    return broken


if __name__ == "__main__":
    sys.exit(min(main(), 1))
