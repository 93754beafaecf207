"""What is fuzzed, and how a target is run from this checkout."""

from __future__ import annotations

from pathlib import Path

from tarn.testing.fuzz.watching import Finding, Fuzzer, Report

__all__ = ["FINDINGS", "NAMES", "ROOT", "fuzzer_of", "story"]

ROOT = Path(__file__).parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
FINDINGS = ROOT / ".fuzz"

NAMES = (
    "sigv4",
    "chunked",
    "xml",
    "entry",
    "ranges",
    "metaranges",
    "pages",
    "yaml",
    # With a share of the time: small, or beside one of those above.
    "head",
    "client",
    "commit",
    "refs",
    "records",
)


def fuzzer_of(name: str) -> Fuzzer:
    """The fuzzer of a target by its name."""
    return Fuzzer(
        f"tests.fuzz.targets.{name}:TARGET",
        folder=ROOT,
        corpus=CORPUS / name,
        findings=FINDINGS / name,
    )


def story(name: str, report: Report) -> str:
    """What a run did and found, with the line that plays each find again."""
    did = report.statistics
    lines = [
        f"{name}: seed {report.seed}, {did.inputs:,} inputs, {did.refused:,} refused, "
        f"{did.kept} kept, {did.features:,} features, {len(report.findings)} bugs"
    ]
    for finding in report.findings:
        lines += ["", finding.bug.signature, _indented(finding), f"  {replay(name, finding)}"]
    return "\n".join(lines)


def replay(name: str, finding: Finding) -> str:
    """The command."""
    return f"make fuzz TARGET={name} INPUT={finding.path.relative_to(ROOT)}"


def _indented(finding: Finding) -> str:
    data = finding.bug.data
    shown = f"{len(data)} bytes: {data[:200]!r}"
    return "\n".join(f"  {line}" for line in [*finding.bug.story.splitlines()[-12:], shown])
