"""A sample of the mutations is seen by the tests that saw them last; `make mutate` plays all."""

import subprocess
import sys

import pytest
from tests.mutants.applying import ROOT
from tests.mutants.killers import recorded
from tests.mutants.written import WRITTEN

_EACH = 12


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
