"""The changes of the operators, the stability of a draw, and the isolation of a mutation in one process."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants.applying import (
    MUTANT_ENV,
    ROOT,
    Drawn,
    MutantGoneError,
    Written,
    block_of_line,
    module_of,
    source_files,
)
from tests.mutants.drawing import all_drawn, draw, weight_of
from tests.mutants.mapping import SITE
from tests.mutants.operators import changes_of
from tests.mutants.written import WRITTEN

_FUNCTION = '''
def pay(self, amount, limit):
    """Pays."""
    if amount > limit:
        raise ValueError("too much")
    assert amount >= 0
    self._log.info("paid %s", amount)
    self._paid += amount
    for each in sorted(self._open, reverse=True):
        if each.is_due and not each.is_old:
            each.settle(amount, limit, quick=True)
    return self._paid - limit
'''


def _after(wanted: str, source: str = _FUNCTION) -> str:
    """Returns the source after the change of this name."""
    tree = ast.parse(source)
    (change,) = [change for change in changes_of(tree) if change.name == wanted]
    change.apply()
    return ast.unparse(tree)


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("pay: comparison: amount > limit -> amount >= limit", "if amount >= limit:", "> limit"),
        (
            "pay: dropped guard: if amount > limit: raise ValueError('too much') -> nothing",
            "pass",
            "raise",
        ),
        ("pay: dropped assignment: self._paid += amount -> nothing", "pass", "+="),
        (
            "pay: other call: sorted(self._open, reverse=True) -> list(self._open)",
            "in list(self._open):",
            "sorted",
        ),
        (
            "pay: and/or: each.is_due and (not each.is_old) -> each.is_due or not each.is_old",
            "each.is_due or not each.is_old",
            " and ",
        ),
        (
            "pay: swapped arguments: each.settle(amount, limit, quick=True)"
            " -> each.settle(limit, amount, quick=True)",
            "settle(limit, amount, quick=True)",
            "settle(amount",
        ),
        (
            "pay: dropped keyword: each.settle(amount, limit, quick=True)"
            " -> each.settle(amount, limit)",
            "settle(amount, limit)",
            "quick",
        ),
        ("pay: constant: True -> False (2)", "quick=False", "quick=True"),
        (
            "pay: arithmetic: self._paid - limit -> self._paid + limit",
            "return self._paid + limit",
            "self._paid - limit",
        ),
    ],
)
def test_an_operator_changes_one_thing(name: str, has: str, has_not: str) -> None:
    after = _after(name)
    assert has in after
    assert has_not not in after
    before = ast.unparse(ast.parse(_FUNCTION)).splitlines()
    assert len(set(after.splitlines()) - set(before)) == 1, "nothing else changes"


def test_texts_assertions_and_log_lines_are_left_alone() -> None:
    names = [change.name for change in changes_of(ast.parse(_FUNCTION))]
    assert not [name for name in names if "assert" in name or "_log" in name or "Pays" in name]


def test_a_name_survives_edits_elsewhere_in_the_module() -> None:
    names = {change.name for change in changes_of(ast.parse(_FUNCTION))}
    edited = {
        change.name for change in changes_of(ast.parse(f"def other():\n    return 1\n{_FUNCTION}"))
    }
    assert names < edited


def test_a_draw_is_the_same_each_time_and_names_each_mutation_once() -> None:
    drawn = draw(50, seed=3)
    assert drawn == draw(50, seed=3)
    assert len({mutation.name for mutation in drawn}) == 50
    assert drawn != draw(50, seed=4)
    assert all(weight_of(mutation.module) > 0 for mutation in drawn)


def test_a_smaller_draw_is_part_of_a_larger_one() -> None:
    assert set(draw(20)) < set(draw(60))


def test_every_mutation_has_a_unique_name() -> None:
    names = [mutation.name for mutation in all_drawn()]
    assert len(set(names)) == len(names)


def test_a_line_belongs_to_its_innermost_block() -> None:
    tree = ast.parse(_FUNCTION)
    function, guard, loop = block_of_line(tree, 4), block_of_line(tree, 5), block_of_line(tree, 10)
    assert function == block_of_line(tree, 8)
    assert len({function, guard, loop}) == 3
    assert block_of_line(ast.parse("X = 1"), 1) is None


@pytest.mark.parametrize("mutation", WRITTEN, ids=lambda mutation: mutation.name)
def test_a_written_mutation_still_applies(mutation: Written) -> None:
    files = {module_of(path): path for path in source_files()}
    source = files[mutation.module].read_text()
    tree = mutation.tree(source)
    assert ast.dump(tree) != ast.dump(ast.parse(source))
    compile(ast.fix_missing_locations(tree), mutation.module, "exec")


def test_a_mutation_whose_code_is_gone_is_an_error() -> None:
    with pytest.raises(MutantGoneError, match=r"0 times in tarn\.core\.refs, not once"):
        Written("gone", "tarn.core.refs", "Something.", "no such text", "").tree("X = 1")
    with pytest.raises(MutantGoneError, match="no such code"):
        Drawn("tarn.core.refs", "f: constant: 1 -> 2").tree("X = 1")


_PROGRAM = """
from tarn.core.branch import Branch
a = Branch(b"1", None, (), "c", 1)
b = Branch(b"2", None, (), "c", 1)
print(a.takes_writes_as(b))
"""


def test_a_mutation_is_only_in_the_process_that_requests_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    file = ROOT / "libs/tarn/core/branch.py"
    before = file.read_bytes()

    def run(name: str) -> str:
        paths = [SITE, *sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), MUTANT_ENV: name}
        ran = subprocess.run(
            [sys.executable, program], env=environment, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    assert run("") == "False"
    assert run("row-of-another-life") == "True"
    assert run("") == "False", "no cache may keep the mutation"
    assert file.read_bytes() == before
