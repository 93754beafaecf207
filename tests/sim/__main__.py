"""`python -m tests.sim`: plays many seeds, or one with its log, or searches seeds that detect a missing guard.

python -m tests.sim --seeds 200 [--first 0]     every seed must keep the promises
python -m tests.sim --seed 7 [--trace]          one run, its log on stdout
python -m tests.sim --mutate [--guard NAME]     searches and records seeds that detect each missing guard
    --compact       with compactors in every plan, not only in some
    --collect       with garbage collections
    --online        with garbage collections and online deletion
    --expire        with garbage collections and retention rules
    --erase         with garbage collections and erasures
    --deletes       with conditional deletes
    --views         with bucket views that are pointed elsewhere
    --sessions      with session keys, beside bucket views
    --salt TEXT     the same plans with other injected faults: runs that are independent of the recorded ones
    --processes N   how many processes play; 2 by default
"""

# ruff: noqa: T201 - it is a command

import argparse
import gc
import multiprocessing
import shlex
import sys
import time
from collections import Counter
from functools import partial

from tests.sim.jobs import detect, keep_guard_seeds, play
from tests.sim.lake_guards import GUARDS
from tests.sim.least import ACKNOWLEDGED, KINDS, shortfalls
from tests.sim.plan import planned
from tests.sim.rare_guards import RARE_GUARDS
from tests.sim.run import run_seed
from tests.sim.world import SALT
from tests.support.faults.modes import Mode

_MODES = {
    Mode.COMPACT: "with compactors in every plan",
    Mode.COLLECT: "with garbage collections",
    Mode.ONLINE: "with garbage collections and online deletion",
    Mode.EXPIRE: "with garbage collections and retention rules",
    Mode.ERASE: "with garbage collections and erasures",
    Mode.DELETES: "with conditional deletes",
    Mode.VIEWS: "with bucket views that are pointed elsewhere",
    Mode.SESSIONS: "with session keys, beside bucket views",
}
_PROCESSES = 2
_SHOWN_MAX = 20
_PROGRESS_SECONDS = 30.0


def play_many(first: int, count: int, *, mode: Mode, salt: str, processes: int) -> int:
    """Plays all seeds of a range; returns how many broke a promise."""
    words = ["--salt", shlex.quote(salt)] if salt != SALT else []
    words += [mode.option] if mode.option else []
    args = f" ARGS={shlex.quote(' '.join(words))}" if words else ""
    began, broken, total = time.perf_counter(), 0, Counter[str]()
    told = began
    with multiprocessing.get_context("spawn").Pool(processes, gc.freeze) as pool:
        seeds = range(first, first + count)
        results = pool.imap_unordered(partial(play, mode=mode, salt=salt), seeds, 4)
        for played, (seed, stories, statistics) in enumerate(results, 1):
            total += statistics
            if (now := time.perf_counter()) - told > _PROGRESS_SECONDS:
                told = now
                done = f"{played:,} of {count:,} seeds, {broken} broke a promise"
                print(done, file=sys.stderr, flush=True)
            if not stories:
                continue
            broken += 1
            print(f"seed {seed} broke a promise", flush=True)
            if broken <= _SHOWN_MAX:
                print(*stories, f"replay: make sim SEED={seed}{args}", sep="\n", flush=True)
    for what, times in sorted(total.items()):
        print(f"{times:9,} {what}")
    counts = {kind: total[f"{ACKNOWLEDGED}{kind}"] for kind in KINDS}
    for text in shortfalls(counts, (planned(seed, mode) for seed in seeds)):
        broken += 1
        print(f"all seeds together: {text}")
    seconds = time.perf_counter() - began
    print(f"{count} seeds in {seconds:.0f} s, {broken} broke a promise")
    return broken


def play_one(seed: int, *, mode: Mode, is_traced: bool, salt: str) -> int:
    """Plays one seed and prints its log; returns the number of failures."""
    run = run_seed(seed, mode=mode, is_traced=is_traced, salt=salt)
    print("\n".join(run.history.log))
    found = [*map(str, run.violations), *run.shortfalls]
    print(*found, sep="\n")
    return len(found)


def mutate(names: list[str]) -> int:
    """Disables each guard until promises break; returns the number of guards that no seed detected.

    Records the seeds for CI, which plays only these (`tests/sim/guard_seeds.json`).
    """
    rare = [guard for guard in RARE_GUARDS if guard.name in names]
    guards = [*(guard for guard in GUARDS if not names or guard.name in names), *rare]
    found: dict[str, list[int]] = {}
    with multiprocessing.get_context("spawn").Pool(_PROCESSES, gc.freeze) as pool:
        for name, seeds, broken in pool.imap_unordered(detect, [g.name for g in guards]):
            found[name] = seeds
            told = f"broken by seeds {seeds}: {broken}" if seeds else "NOT DETECTED"
            print(f"{name:28} {told}", flush=True)
            keep_guard_seeds(found)
    undetected = sum(not seeds for seeds in found.values())
    print(f"{len(guards)} guards, {undetected} not detected")
    return undetected


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seed", type=int, help="play only this seed and print its log")
    parser.add_argument("--trace", action="store_true", help="log each operation of the stores")
    parser.add_argument("--mutate", action="store_true", help="disable each guard")
    parser.add_argument("--guard", action="append", default=[], help="only this guard")
    parser.add_argument("--salt", default=SALT, help="of the injected faults; default: %(default)s")
    modes = parser.add_mutually_exclusive_group()
    for mode, text in _MODES.items():
        modes.add_argument(mode.option, dest="mode", action="store_const", const=mode, help=text)
    parser.set_defaults(mode=Mode.DRAWN)
    parser.add_argument("--processes", type=int, default=_PROCESSES, help="that play seeds")
    given = parser.parse_args()
    if given.mutate and given.salt != SALT:
        parser.error("--salt does not apply to --mutate: seeds of guards are recorded for one salt")
    if given.mutate and given.mode is not Mode.DRAWN:
        parser.error(f"{given.mode.option} does not apply to --mutate: a guard says what it needs")
    how = {"mode": given.mode, "salt": given.salt}
    if given.seed is not None:
        return play_one(given.seed, is_traced=given.trace, **how)
    if given.mutate:
        return mutate(given.guard)
    return play_many(given.first, given.seeds, processes=given.processes, **how)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
