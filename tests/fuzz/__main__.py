"""`python -m tests.fuzz`: fuzzes all targets or one, or replays one input.

python -m tests.fuzz [--seconds 60] [--seed 1]      all targets, two at a time
python -m tests.fuzz --target sigv4 --seconds 600   one
python -m tests.fuzz --target sigv4 --input FILE    one input of it
python -m tests.fuzz --target interface             requests by the published interface of the REST endpoint
"""

# ruff: noqa: T201 - it is a command

import argparse
import itertools
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.runs import NAMES, ROOT, fuzzer_of, story

INTERFACE = "interface"
_PROCESSES = 2


def try_interface(seed: int, seconds: float) -> bool:
    """Sends requests to a REST endpoint, with one seed after another; returns whether all answers were right."""
    sys.path.insert(0, str(ROOT / "tests" / "harness"))
    from tests.fuzz.interface import served, try_operations

    end, sent = time.monotonic() + seconds, 0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as at:
        for number in itertools.count(seed):
            try:
                sent += try_operations(at, number=number, examples=4)
            except Exception as error:  # noqa: BLE001 - whatever is wrong, it is told
                print(f"{INTERFACE}: seed {number}: {error}")
                return False
            if time.monotonic() >= end:
                break
    print(f"{INTERFACE}: {sent} requests from seed {seed} on, no bug")
    return True


def main() -> int:
    """See the module; returns 1 if there was a bug."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=(*NAMES, INTERFACE), help="only this one")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other inputs")
    parser.add_argument("--input", type=Path, help="only this file, with --target")
    given = parser.parse_args()
    if given.input is not None:
        if given.target in (None, INTERFACE):
            parser.error("--input needs --target")
        report = fuzzer_of(given.target).replay([(ROOT / given.input).resolve()])
        print(story(given.target, report))
        return int(bool(report.findings))
    names = [given.target] if given.target else [*NAMES, INTERFACE]

    def run(name: str) -> bool:
        if name == INTERFACE:
            return not try_interface(given.seed, given.seconds)
        report = fuzzer_of(name).run(seed=given.seed, seconds=given.seconds)
        print(story(name, report), flush=True)
        return bool(report.findings)

    # The threads only wait: each target of a parser runs in a separate process.
    with ThreadPoolExecutor(_PROCESSES) as pool:
        return int(any(list(pool.map(run, names))))


if __name__ == "__main__":
    sys.exit(main())
