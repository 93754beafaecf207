"""The list of fuzzing targets, and how to run one from this checkout."""

from __future__ import annotations

from pathlib import Path

from tests.support.fuzz.watching import Finding, Fuzzer, Report

__all__ = ["FINDINGS", "INPUTS", "NAMES", "ROOT", "fuzzer_of", "story"]

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
FINDINGS = ROOT / ".fuzz"

INPUTS = {
    "sigv4": 2_160,
    "sigv2": 900,
    "chunked": 900,
    "forms": 540,
    "xml": 2_160,
    "entry": 450,
    "ranges": 270,
    "metaranges": 360,
    "parts": 270,
    "archives": 540,
    "journal": 270,
    "sstables": 900,
    "pages": 10_800,
    "yaml": 180,
    # Small parsers, and parsers that targets above also cover.
    "head": 3_240,
    "client": 1_800,
    "commit": 540,
    "refs": 3_240,
    "records": 2_520,
    "sts": 1_800,
    "cors": 1_200,
    "rest": 1_200,
}
"""Number of inputs that the tests generate for each target: seconds of an idle processor. `make fuzz` tries more."""

NAMES = tuple(INPUTS)


def fuzzer_of(name: str) -> Fuzzer:
    """Returns the fuzzer of a target."""
    return Fuzzer(
        f"tests.fuzz.targets.{name}:TARGET",
        folder=ROOT,
        corpus=CORPUS / name,
        findings=FINDINGS / name,
    )


def story(name: str, report: Report) -> str:
    """Describes a run and its findings, each with the command that replays it."""
    did = report.statistics
    lines = [
        f"{name}: seed {report.seed}, {did.inputs:,} inputs, {did.refused:,} refused, "
        f"{did.kept} kept, {did.features:,} features, {len(report.findings)} bugs"
    ]
    for finding in report.findings:
        lines += ["", finding.bug.signature, _indented(finding), f"  {replay(name, finding)}"]
    return "\n".join(lines)


def replay(name: str, finding: Finding) -> str:
    """Returns the command that replays an input."""
    return f"make fuzz TARGET={name} INPUT={finding.path.relative_to(ROOT)}"


def _indented(finding: Finding) -> str:
    data = finding.bug.data
    shown = f"{len(data)} bytes: {data[:200]!r}"
    return "\n".join(f"  {line}" for line in [*finding.bug.story.splitlines()[-12:], shown])
