"""A sample of the mutations is killed by the tests that killed them last; `make mutate` plays all."""

import subprocess
import sys
from fnmatch import fnmatchcase

import pytest
from tests.mutants.applying import ROOT, module_of, source_files
from tests.mutants.drawing import WEIGHTS
from tests.mutants.killers import recorded
from tests.mutants.mapping import TESTS
from tests.mutants.written import WRITTEN

_EACH = 4


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_a_sample_of_mutations_is_killed() -> None:
    command = [sys.executable, "-m", "tests.mutants", "--sample", str(_EACH)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    assert f"{2 * _EACH} mutants" in ran.stdout


def test_every_written_mutation_was_killed() -> None:
    unseen = {mutation.name for mutation in WRITTEN} - recorded().keys()
    assert unseen == set()


def test_the_map_is_made_of_tests_that_exist() -> None:
    """Without parameters, whose names change. A map of tests that are gone cannot be made."""
    for test in TESTS:
        file, _, function = test.partition("::")
        assert (ROOT / file).exists(), test
        assert not function or f"def {function}(" in (ROOT / file).read_text(), test


def test_every_recorded_killer_is_a_test() -> None:
    """A sample that draws a killer that is gone cannot run. A contract suite defines tests of its subclasses."""
    suites = [path.read_text() for path in (ROOT / "libs/tarn/testing/contract").glob("*.py")]
    gone = []
    for test in recorded().values():
        file, _, name = test.partition("::")
        if not name:
            continue  # in words: a limit, or a failed import
        sources = [(ROOT / file).read_text(), *suites] if (ROOT / file).is_file() else []
        function = name.partition("[")[0].rpartition("::")[2]
        if not any(f"def {function}(" in source for source in sources):
            gone.append(test)
    assert gone == []


def test_every_weight_is_of_a_module() -> None:
    modules = [module_of(path) for path in source_files()]
    patterns = [pattern for pattern, _ in WEIGHTS]
    assert [each for each in patterns if not any(fnmatchcase(name, each) for name in modules)] == []
