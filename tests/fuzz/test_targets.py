"""All parsers of untrusted bytes, with generated inputs.

`FUZZ_SECONDS=2 pytest tests/fuzz` is a quick run; `make fuzz` runs for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz.conftest import Budget
from tests.fuzz.runs import CORPUS, INPUTS, NAMES, ROOT, fuzzer_of, story
from tests.support.fuzz.target import target_of

REASON_CHARS_MIN = 3
PATIENCE_S = 3600.0
"""Limits only the time after an input that kills its process."""


@pytest.mark.fuzz
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_no_input_makes_a_parser_crash_hang_or_use_unbounded_memory(
    name: str, budget: Budget
) -> None:
    if budget.seconds is None:
        report = fuzzer_of(name).run(seed=budget.seed, seconds=PATIENCE_S, inputs_max=INPUTS[name])
    else:
        seconds = budget.seconds * target_of(f"tests.fuzz.targets.{name}:TARGET").share
        report = fuzzer_of(name).run(seed=budget.seed, seconds=seconds)
    print(story(name, report))  # noqa: T201 - the seed, in the log of a failure
    assert not report.findings, story(name, report)
    assert report.statistics.inputs > report.statistics.kept > 1, "the corpus must reach new lines"
    if budget.seconds is None:
        corpus = len(list((CORPUS / name).iterdir()))
        assert report.statistics.inputs == INPUTS[name] + corpus, (
            "every machine tries the same inputs"
        )


def test_every_target_has_a_corpus_and_every_corpus_a_target() -> None:
    modules = {path.stem for path in (ROOT / "tests/fuzz/targets").glob("*.py")}
    assert sorted(NAMES) == sorted(path.name for path in CORPUS.iterdir())
    assert set(NAMES) <= modules
    assert set(NAMES) == set(INPUTS)


def test_inputs_of_the_corpus_are_small_and_named_for_their_purpose() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert [path.name for path in files if len(path.name) < REASON_CHARS_MIN] == []
    assert [path for path in files if path.stat().st_size > 64 * 1024] == []
    counts = {name: len(list(Path(CORPUS / name).iterdir())) for name in NAMES}
    assert {name: count for name, count in counts.items() if count > 60} == {}
