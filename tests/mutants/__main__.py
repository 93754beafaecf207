"""`python -m tests.mutants`: mutates the source and reports whether the tests detect it.

python -m tests.mutants                            every written and 300 drawn mutations
python -m tests.mutants --only tarn.core           those of modules whose name starts with this
python -m tests.mutants --name NAME                one mutation, by its name
python -m tests.mutants --sample 12                12 of each kind, with the test that killed them last
python -m tests.mutants --list                     list the mutations that would run
python -m tests.mutants --map [TEST…]              renew the test map, all of it or that of some tests
python -m tests.mutants --record                   record in killers.json which test killed each mutation
python -m tests.mutants --unseen                   mutations without a recorded killer

A survivor shows a behaviour that no test covers. Write the test, at the lowest layer that can show it; add a
mutation that changes no behaviour to `equivalent.py` with the reason.
"""

# ruff: noqa: T201 - it is a command

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.mutants import killers
from tests.mutants.applying import Drawn, MutantGoneError, Mutation, module_of, source_files
from tests.mutants.drawing import DRAWN, SEED, draw, lot
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.mapping import TestMap, default_place, make_map
from tests.mutants.naming import mutation_of
from tests.mutants.running import Fate, Verdict, batches, preload, try_tests
from tests.mutants.written import WRITTEN

_SCORE_MIN = 0.95
_FILES = {module_of(path): path for path in source_files()}


def main() -> int:
    """See the module."""
    given = _parser().parse_args()
    if given.sample:
        return _sample(given.sample, given.seed)
    mutations = _chosen(given)
    if given.list:
        for mutation in mutations:
            print(mutation.name)
        return 0
    place: Path = given.map_file
    if given.map is not None or not place.exists():
        print(f"running the tests once for the test map: {place}", flush=True)
        newer = make_map(given.map or [])
        (TestMap.load(place).renewed(newer) if given.map else newer).save(place)
        if given.map:
            return 0
    found = TestMap.load(place)
    known = {mutation.name for mutation in WRITTEN}
    known |= {mutation.name for mutation in draw(max(given.drawn, DRAWN), given.seed)}

    def attempt(mutation: Mutation) -> Verdict:
        verdict = _try(mutation, found, given.seconds)
        if given.record:
            killers.record(mutation.name, verdict.test, known)
        return verdict

    verdicts = _try_all(mutations, attempt)
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
    parser.add_argument("--unseen", action="store_true", help="those without a recorded killer")
    parser.add_argument("--sample", type=int, default=0, help="so many of each sort, without a map")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("--map", nargs="*", metavar="TEST", help="make it anew, or for some tests")
    parser.add_argument("--map-file", type=Path, default=default_place(), help="where it is kept")
    parser.add_argument("--seconds", type=float, default=120.0, help="of tests for one mutation")
    parser.add_argument("--record", action="store_true", help="write killers.json")
    return parser


def _chosen(given: argparse.Namespace) -> list[Mutation]:
    if given.name:
        return [mutation_of(name) for name in given.name]
    mutations: list[Mutation] = [*WRITTEN, *draw(given.drawn, given.seed)]
    killed = killers.recorded() if given.unseen else {}
    return [
        mutation
        for mutation in mutations
        if mutation.module.startswith(given.only) and mutation.name not in killed
    ]


def _sample(count: int, seed: int) -> int:
    """Plays some mutations, each with the test that killed it last, which must kill it again."""
    by = {name: test for name, test in killers.recorded().items() if "::" in test}
    written = sorted(WRITTEN, key=lambda mutation: lot(mutation.name, seed))[:count]
    drawn: list[Mutation] = []
    for name in sorted(by, key=lambda name: lot(name, seed)):
        mutation = mutation_of(name)
        if len(drawn) < count and isinstance(mutation, Drawn) and _is_there(mutation):
            drawn.append(mutation)

    def attempt(mutation: Mutation) -> Verdict:
        test = by.get(mutation.name)
        return try_tests(mutation, [[test]] if test else [], {})

    if len(drawn) < count:
        print(f"only {len(drawn)} recorded mutations still apply; `make mutate ARGS=--record`")
        return 1
    return _summary(_try_all([*written, *drawn], attempt))


def _is_there(mutation: Mutation) -> bool:
    try:
        mutation.line(_FILES[mutation.module].read_text())
    except (KeyError, MutantGoneError):
        return False
    return True


def _try_all(
    mutations: Sequence[Mutation], attempt: Callable[[Mutation], Verdict]
) -> dict[str, Verdict]:
    preload()
    verdicts = {}
    for number, mutation in enumerate(mutations, 1):
        if mutation.name in EQUIVALENT:
            continue
        verdict = attempt(mutation)
        verdicts[mutation.name] = verdict
        line = f"{number:4}/{len(mutations)} {verdict.fate.value:9} {verdict.seconds:5.1f} s "
        by = f" by {verdict.test}" if verdict.test else f" ({verdict.tests} tests)"
        print(f"{line} {mutation.name}{by}", flush=True)
    return verdicts


def _try(mutation: Mutation, found: TestMap, budget: float) -> Verdict:
    """Plays a mutation with the test that killed it last, then with every test that enters its block."""
    source = _FILES[mutation.module].read_text()
    tests = found.tests_of(mutation.module, source, mutation.line(source))
    groups = batches(tests, found.seconds, mutation.module, budget)
    last = killers.recorded().get(mutation.name)
    if last in found.seconds:
        groups = [[last], *groups]
    return try_tests(mutation, groups, found.seconds)


def _summary(verdicts: dict[str, Verdict]) -> int:
    """Prints the score; returns 1 if it is too low or a written mutation survived."""
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
