"""The list of cases: what `make bench CASES=…` can name."""

from bench.load.cases import CASES


def test_every_case_has_a_unique_name_that_can_be_listed() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert not [name for name in names if set(name) & set(", /") or not name]


def test_the_quick_run_has_the_main_figures() -> None:
    quick = {case.name for case in CASES if case.quick}
    assert quick == {"get", "head", "put", "list", "commit"}
