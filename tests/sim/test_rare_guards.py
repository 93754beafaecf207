"""Each rare guard has a test that fails without it (docs/design/simulation.md), and each weakening fits the code."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.sim.lake_guards import GUARDS
from tests.sim.rare_guards import DETECTED_BY, RARE_GUARDS
from tests.sim.weakened import Failure, Told, is_expected
from tests.support.faults.guards import Guard, Weakening

from tarn.core.errors import Kind, Reason, TarnError

_ROOT = Path(__file__).parents[2]
_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_the_test_of_a_rare_guard_fails_without_it() -> None:
    command = [sys.executable, "-m", "tests.sim.weakened"]
    ran = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    told = [
        Told(**{**line, "failures": [Failure(**each) for each in line["failures"]]})
        for line in lines
    ]
    assert [each.guard for each in told] == ["", *(guard.name for guard in RARE_GUARDS)]
    assert told[0].exit_code == pytest.ExitCode.OK, f"with all guards on:\n{told[0].output}"
    assert told[0].collected >= len(set(DETECTED_BY.values()))
    missed = [each for each in told[1:] if not each.is_detected]
    text = "\n".join(
        f"without {each.guard}, {DETECTED_BY[each.guard]} does not fail by what it checks:\n{each.output}"
        for each in missed
    )
    assert not missed, text


@pytest.mark.parametrize(
    ("heading", "guards"),
    [("**Guards with a seed**", GUARDS), ("**Rare guards.**", RARE_GUARDS)],
    ids=["with a seed", "rare"],
)
def test_the_page_names_every_guard_with_its_rule(heading: str, guards: Sequence[Guard]) -> None:
    page = (_ROOT / "docs/design/simulation.md").read_text()
    paragraph = page.partition(heading)[2].partition("\n\n")[0]
    named = [
        (rule.removeprefix("rule "), name)
        for rule, names in re.findall(r"^- ([\w ]+): (.+)$", paragraph, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", names)
    ]
    assert sorted(named) == sorted((guard.rule, guard.name) for guard in guards)


def test_every_rare_guard_has_its_test() -> None:
    assert DETECTED_BY.keys() == {guard.name for guard in RARE_GUARDS}


def test_only_what_a_test_checks_counts_as_detected() -> None:
    failed = Failure("t", "call", True, "")
    assert Told("g", 1, 1, [failed]).is_detected
    assert not Told("g", 0, 1, []).is_detected
    assert not Told("g", 1, 1, []).is_detected
    assert not Told("g", 2, 0, [Failure("t", "collect", False, "")]).is_detected
    assert not Told("g", 1, 1, [Failure("t", "setup", True, "")]).is_detected
    assert not Told("g", 1, 2, [failed, Failure("t", "call", False, "")]).is_detected
    assert is_expected(AssertionError())
    assert is_expected(TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, "no block"))
    assert not is_expected(TarnError(Kind.INTERNAL, Reason.INTERNAL, "a TypeError of a handler"))
    assert not is_expected(TypeError())
    assert not is_expected(TimeoutError())


@pytest.mark.parametrize("guard", [*GUARDS, *RARE_GUARDS], ids=lambda guard: guard.name)
def test_a_weakening_takes_the_arguments_of_what_it_replaces(guard: Guard) -> None:
    for weakening in guard.weakenings:
        assert _refused(weakening) == [], f"{weakening.owner}.{weakening.name}"


def _refused(weakening: Weakening) -> list[str]:
    """The parameters of the replaced function that its replacement does not take."""
    before = vars(weakening.owner)[weakening.name]
    before = getattr(before, "__func__", before)
    after = getattr(weakening.instead, "__func__", weakening.instead)
    if not callable(before) or not callable(after) or inspect.isclass(before):
        return []
    known = inspect.signature(before).parameters.values()
    taken = inspect.signature(after).parameters
    kinds = {each.kind for each in taken.values()}
    takes_names = inspect.Parameter.VAR_KEYWORD in kinds
    takes_all = inspect.Parameter.VAR_POSITIONAL in kinds
    places = [each for each in known if each.kind not in (*_ANY, inspect.Parameter.KEYWORD_ONLY)]
    room = sum(each.kind not in (*_ANY, inspect.Parameter.KEYWORD_ONLY) for each in taken.values())
    refused = [] if takes_all else [each.name for each in places[room:]]
    names = [each.name for each in known if each.kind is inspect.Parameter.KEYWORD_ONLY]
    return refused + [name for name in names if name not in taken and not takes_names]
