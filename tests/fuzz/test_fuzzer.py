"""The fuzzer itself: planted bugs are found, distinguished, and found again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fuzz import planted
from tests.fuzz.runs import ROOT
from tests.support.fuzz.minimising import minimised
from tests.support.fuzz.watching import Fuzzer, Report

SECONDS = 30
"""Time limit of a search; an idle machine needs a second or two."""

pytestmark = pytest.mark.timeout(180)


def fuzzed(
    folder: Path,
    name: str,
    *,
    seed: int = 1,
    inputs_max: int | None = None,
    corpus: Path = Path("none"),
) -> Report:
    fuzzer = Fuzzer(
        f"tests.fuzz.planted:{name}", folder=ROOT, corpus=corpus, findings=folder / "found"
    )
    return fuzzer.run(seed=seed, seconds=SECONDS, inputs_max=inputs_max, first_bug=True)


def only(report: Report) -> tuple[str, bytes]:
    assert len(report.findings) == 1, report
    finding = report.findings[0]
    assert finding.path.read_bytes() == finding.bug.data
    assert finding.bug.signature in finding.path.with_suffix(".txt").read_text()
    return finding.bug.signature, finding.bug.data


def test_a_crash_behind_nested_comparisons_is_found_and_minimised(tmp_path: Path) -> None:
    signature, data = only(fuzzed(tmp_path, "CRASH"))
    assert signature.startswith("KeyError in fuzz/planted.py:crash:")
    assert len(data) == 6
    assert data.startswith(planted.NAMED_TWICE)


def test_an_error_outside_of_the_contract_is_a_bug(tmp_path: Path) -> None:
    signature, data = only(fuzzed(tmp_path, "UNTOLD"))
    assert signature.startswith("UnicodeDecodeError in fuzz/planted.py:untold:")
    assert len(data) == 1


def test_a_loop_without_end_is_a_hang(tmp_path: Path) -> None:
    signature, data = only(fuzzed(tmp_path, "HANG"))
    assert signature == "hang"
    assert (data[:1], data[-1:]) == (b"<", b">")


def test_a_loop_in_c_that_looks_at_no_signal_is_a_hang(tmp_path: Path) -> None:
    signature, data = only(fuzzed(tmp_path, "HANG_IN_C"))
    assert signature.startswith("hang in C in planted.py:hang_in_c:")
    assert (data[:1], data[-1:]) == (b"<", b">")


@pytest.mark.parametrize("name", ["BOMB", "RESERVATION"])
def test_a_parser_that_trusts_a_length_is_found_by_its_memory(tmp_path: Path, name: str) -> None:
    signature, data = only(fuzzed(tmp_path, name))
    assert signature == "memory"
    assert data.startswith(b"size=")


def test_an_input_that_kills_the_process_is_saved(tmp_path: Path) -> None:
    signature, data = only(fuzzed(tmp_path, "DEATH"))
    assert signature.startswith("death by SIGSEGV in ")
    assert data == b"null"


def test_a_failing_input_fails_again_when_it_is_replayed(tmp_path: Path) -> None:
    found = fuzzed(tmp_path, "CRASH").findings[0]
    fuzzer = Fuzzer(
        "tests.fuzz.planted:CRASH", folder=ROOT, corpus=tmp_path, findings=tmp_path / "again"
    )
    again = fuzzer.replay([found.path])
    assert [finding.bug.signature for finding in again.findings] == [found.bug.signature]
    assert again.statistics.inputs == 1


def test_a_parser_without_bugs_gives_no_findings(tmp_path: Path) -> None:
    report = fuzzed(tmp_path, "SOUND", inputs_max=2000)
    assert report.findings == []
    assert report.statistics.inputs == 2000
    assert 0 < report.statistics.refused < 2000
    assert not (tmp_path / "found").exists()


def test_a_seed_makes_the_same_inputs_again_and_another_one_others(tmp_path: Path) -> None:
    one, again, other = (fuzzed(tmp_path, "SOUND", seed=s, inputs_max=500) for s in (7, 7, 8))
    assert one.statistics == again.statistics
    assert one.statistics.digest != other.statistics.digest


def test_the_corpus_is_tried_first(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "regression").write_bytes(b"\xa7\x3c\x00\xff\x00\x55")
    report = fuzzed(tmp_path, "CRASH", inputs_max=0, corpus=corpus)
    assert only(report)[0].startswith("KeyError")


def test_minimising_keeps_what_the_failure_needs() -> None:
    found = minimised(b"some [ text ] around", lambda data: b"[" in data and b"]" in data, 1000)
    assert found == b"[]"


def test_minimising_stops_after_its_tries() -> None:
    tried: list[bytes] = []

    def fails(data: bytes) -> bool:
        tried.append(data)
        return False

    minimised(bytes(1000), fails, 7)
    assert len(tried) == 7
