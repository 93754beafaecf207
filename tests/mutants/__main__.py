"""`python -m tests.mutants`: mutations of the source, and whether the tests see them.

python -m tests.mutants                            every written and 300 drawn mutations
python -m tests.mutants --only tarn.core --drawn 50  the first of those whose module starts so
python -m tests.mutants --name NAME                one mutation, by its name
python -m tests.mutants --list                     what would run
python -m tests.mutants --map                      make the test map anew
python -m tests.mutants --record                   write who killed whom to killers.json

A survivor is a behaviour that no test sees. Write the test, at the lowest layer that can show it; a
mutation that changes no behaviour goes to `equivalent.py` with its reason.
"""

# ruff: noqa: T201 - it is a command

import argparse
import ast
import sys
import time
from collections import Counter
from pathlib import Path

from tests.mutants import killers
from tests.mutants.applying import Drawn, Mutation, Written, module_of, source_files
from tests.mutants.drawing import DRAWN, SEED, draw
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mapping import TestMap, default_place, make_map
from tests.mutants.naming import mutation_of
from tests.mutants.operators import changes_of
from tests.mutants.running import Fate, Verdict, batches, preload, try_tests
from tests.mutants.written import WRITTEN

_SCORE_MIN = 0.95
_FILES = {module_of(path): path for path in source_files()}


def main() -> int:
    """See the module."""
    given = _parser().parse_args()
    mutations = _chosen(given)
    if given.list:
        for mutation in mutations:
            print(mutation.name)
        return 0
    place: Path = given.map_file
    if given.map or not place.exists():
        print(f"running the tests once for the test map: {place}", flush=True)
        make_map().save(place)
    found = TestMap.load(place)
    preload()
    verdicts = _try_all(mutations, found, given.seconds)
    if given.record:
        killers.record({name: verdict.test for name, verdict in verdicts.items() if verdict.test})
    return _summary(verdicts)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--drawn", type=int, default=DRAWN, help="how many to draw")
    parser.add_argument("--seed", type=int, default=SEED, help="of the draw")
    parser.add_argument("--only", default="", help="modules whose name starts so")
    parser.add_argument("--name", action="append", default=[], help="a mutation; may be repeated")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--map", action="store_true", help="make the test map anew")
    parser.add_argument("--map-file", type=Path, default=default_place(), help="where it is kept")
    parser.add_argument("--seconds", type=float, default=120.0, help="of tests for one mutation")
    parser.add_argument("--record", action="store_true", help="write killers.json")
    return parser


def _chosen(given: argparse.Namespace) -> list[Mutation]:
    if given.name:
        return [mutation_of(name) for name in given.name]
    mutations: list[Mutation] = [*WRITTEN, *draw(given.drawn, given.seed)]
    return [mutation for mutation in mutations if mutation.module.startswith(given.only)]


def _try_all(mutations: list[Mutation], found: TestMap, budget: float) -> dict[str, Verdict]:
    verdicts = {}
    for number, mutation in enumerate(mutations, 1):
        if mutation.name in EQUIVALENT:
            continue
        verdict = _try(mutation, found, budget)
        verdicts[mutation.name] = verdict
        line = f"{number:4}/{len(mutations)} {verdict.fate.value:9} {verdict.seconds:5.1f} s "
        by = f" by {verdict.test}" if verdict.test else f" ({verdict.tests} tests)"
        print(f"{line} {mutation.name}{by}", flush=True)
    return verdicts


def _try(mutation: Mutation, found: TestMap, budget: float) -> Verdict:
    if isinstance(mutation, Written):
        return try_tests(mutation, [[test] for test in mutation.tests], {})
    assert isinstance(mutation, Drawn)
    source = _FILES[mutation.module].read_text()
    tree = ast.parse(source)
    lines = [change.line for change in changes_of(tree) if change.name == mutation.change]
    if not lines:
        mutation.tree(source)  # tells what is wrong
    tests = found.tests_of(mutation.module, source, lines[0])
    groups = batches(_within(tests, found, budget), found.seconds, mutation.module)
    return try_tests(mutation, groups, found.seconds)


def _within(tests: set[str], found: TestMap, budget: float) -> list[str]:
    """The cheapest tests that take so long together."""
    chosen: list[str] = []
    spent = 0.0
    for test in sorted(tests, key=lambda test: (found.seconds[test], test)):
        spent += found.seconds[test]
        if chosen and spent > budget:
            break
        chosen.append(test)
    return chosen


def _summary(verdicts: dict[str, Verdict]) -> int:
    """Prints the score; 1 if it is too low or a written mutation survived."""
    fates = Counter(verdict.fate for verdict in verdicts.values())
    survivors = [name for name, verdict in verdicts.items() if verdict.fate is Fate.SURVIVED]
    if survivors:
        print("\nNo test saw:")
        for name in survivors:
            print(f"  {name}")
    killed = fates[Fate.KILLED] + fates[Fate.TIMED_OUT]
    tried = len(verdicts)
    score = killed / tried if tried else 1.0
    print(
        f"\n{tried} mutants, {killed} killed ({fates[Fate.TIMED_OUT]} by a time limit), "
        f"{len(survivors)} survived: {score:.1%}"
    )
    print(f"{len(EQUIVALENT)} more change no behaviour (tests/mutants/equivalent.py)")
    written = {mutation.name for mutation in WRITTEN}
    return 1 if score < _SCORE_MIN or written & set(survivors) else 0


if __name__ == "__main__":
    began = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    sys.exit(code)
