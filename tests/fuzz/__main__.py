"""`python -m tests.fuzz`: fuzzes all targets or one, or replays one input.

python -m tests.fuzz [--seconds 60] [--seed 1]      all targets, two at a time
python -m tests.fuzz --target sigv4 --seconds 600   one
python -m tests.fuzz --target sigv4 --input FILE    one input of it
"""

# ruff: noqa: T201 - it is a command

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.runs import NAMES, ROOT, fuzzer_of, story

_PROCESSES = 2


def main() -> int:
    """See the module; returns 1 if there was a bug."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=NAMES, help="only this one")
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other inputs")
    parser.add_argument("--input", type=Path, help="only this file, with --target")
    given = parser.parse_args()
    if given.input is not None:
        if given.target is None:
            parser.error("--input needs --target")
        report = fuzzer_of(given.target).replay([(ROOT / given.input).resolve()])
        print(story(given.target, report))
        return int(bool(report.findings))
    names = [given.target] if given.target else list(NAMES)

    def run(name: str) -> bool:
        report = fuzzer_of(name).run(seed=given.seed, seconds=given.seconds)
        print(story(name, report), flush=True)
        return bool(report.findings)

    # The threads only wait: each target runs in a separate process.
    with ThreadPoolExecutor(_PROCESSES) as pool:
        return int(any(list(pool.map(run, names))))


if __name__ == "__main__":
    sys.exit(main())
