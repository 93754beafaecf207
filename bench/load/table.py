"""Results: rows in a JSON file, and the tables of all of them (`DETAILS.md`).

A run of some cases replaces the rows of these cases and keeps the others; each row carries its date and
commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType

__all__ = ["Goal", "Origin", "Results", "Row", "render"]


@dataclass(frozen=True, slots=True)
class Goal:
    """Bounds of a row (docs/design/performance.md, "Goals"); None: no bound."""

    ratio_min: float | None = None
    ratio_max: float | None = None
    cpu_us_max: float | None = None
    p50_ms_max: float | None = None
    p99_ms_max: float | None = None
    rss_mib_max: float | None = None

    def __str__(self) -> str:
        parts = (
            ("≥ {:g} \N{MULTIPLICATION SIGN}", self.ratio_min),
            ("≤ {:g} \N{MULTIPLICATION SIGN}", self.ratio_max),
            ("≤ {:g} µs", self.cpu_us_max),
            ("median ≤ {:g} ms", self.p50_ms_max),
            ("p99 ≤ {:g} ms", self.p99_ms_max),
            ("≤ {:g} MiB", self.rss_mib_max),
        )
        return ", ".join(text.format(bound) for text, bound in parts if bound is not None)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; None: not measured.

    Attributes:
        case: name of the case in `CASES`.
        what: the operation.
        form: form of Tarn.
        per_second: operations per second.
        p50_ms: median latency.
        p99_ms: 99th percentile of all rounds.
        ratio: ratio to `yardstick`, the median over the rounds.
        ratio_low: smallest ratio of a round.
        ratio_high: largest ratio of a round.
        yardstick: what the ratio refers to.
        cpu_us: CPU time of the server per operation.
        store_cpu_us: CPU time of a separate metadata store per operation.
        rss_mib: peak memory of the largest process.
        goal: bounds; see `Goal`.
        note: remarks and errors.
        failed: nothing was measured, or answers were wrong.
        rounds: number of rounds.
    """

    case: str
    what: str
    form: str = ""
    per_second: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    yardstick: str = ""
    cpu_us: float | None = None
    rss_mib: float | None = None
    goal: Goal = field(default_factory=Goal)
    note: str = ""
    failed: bool = False
    rounds: int = 1
    store_cpu_us: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether every bound holds; None without a goal."""
        bounds = (
            (self.goal.ratio_min, self.ratio, 1),
            (self.goal.ratio_max, self.ratio, -1),
            (self.goal.cpu_us_max, self.cpu_us, -1),
            (self.goal.p50_ms_max, self.p50_ms, -1),
            (self.goal.p99_ms_max, self.p99_ms, -1),
            (self.goal.rss_mib_max, self.rss_mib, -1),
        )
        goals = [(bound, value, sign) for bound, value, sign in bounds if bound is not None]
        if not goals:
            return None
        return not self.failed and all(
            value is not None and value * sign >= bound * sign for bound, value, sign in goals
        )


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of rows.

    Attributes:
        date: `yyyy-mm-dd`.
        commit: abbreviated commit of the code; with `+` if the tree had changes.
        scale: 1.0 for the sizes that the rows name.
        mode: `full` or `quick`.
        machine: description of the machine, without a host name.
    """

    date: str
    commit: str
    scale: float
    mode: str
    machine: str = ""


class Results:
    """The rows of the last run of each case, in a JSON file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cases: dict[str, tuple[Origin, list[Row]]] = {}
        if file.exists():
            for name, kept in json.loads(file.read_text()).items():
                rows = [Row(**{**row, "goal": Goal(**row["goal"])}) for row in kept["rows"]]
                self._cases[name] = (Origin(**kept["origin"]), rows)

    def replace(self, case: str, origin: Origin, rows: Iterable[Row]) -> None:
        """Replaces the rows of a case."""
        self._cases[case] = (origin, list(rows))

    def save(self) -> None:
        """Writes the file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            name: {"origin": asdict(origin), "rows": [asdict(row) for row in rows]}
            for name, (origin, rows) in self._cases.items()
        }
        self._file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")

    def of(self, cases: Sequence[str]) -> list[tuple[Origin, Row]]:
        """Returns the rows of cases, in that order."""
        return [
            (self._cases[name][0], row)
            for name in cases
            if name in self._cases
            for row in self._cases[name][1]
        ]


_HEAD = (
    *("what", "Tarn runs as", "per second", "median ms", "p99 ms", "ratio (low to high)", "to"),
    *("CPU µs", "peak RSS MiB", "goal", "met"),
)
_STORE_HEAD = "CPU µs of the metadata store"


def render(
    rows: Sequence[tuple[Origin, Row]],
    sections: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Returns `DETAILS.md`.

    Args:
        rows: all rows, in order.
        sections: cases whose rows have a table of their own, with its heading.
    """
    lines = ["# Every row of `make bench`", ""]
    lines += [
        "Written by the benchmark from [results/load.json](results/load.json). The figures that matter "
        "are in [RESULTS.md](RESULTS.md); [README.md](README.md) says how it measures.",
        "",
    ]
    if any(origin.scale != 1.0 for origin, _ in rows):
        lines += [
            "**Rows with a scale are a trial of the benchmark, of smaller sizes than they say.**",
            "",
        ]
    if found := [item for item in rows if not sections.get(item[1].case)]:
        lines += _table(found)
    for title in dict.fromkeys(filter(None, sections.values())):
        if found := [item for item in rows if sections.get(item[1].case) == title]:
            lines += [f"## {title}", "", *_table(found)]
    lines += ["## Measured when", "", *_origins(rows), ""]
    return "\n".join(lines)


def _table(rows: Sequence[tuple[Origin, Row]]) -> list[str]:
    """Returns a table and its notes."""
    with_store = any(row.store_cpu_us is not None for _, row in rows)
    head = (*_HEAD[:8], _STORE_HEAD, *_HEAD[8:]) if with_store else _HEAD
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    notes: list[str] = []
    for origin, row in rows:
        mark = "" if origin.scale == 1.0 else f" (scale {origin.scale:g})"
        if row.note:
            notes.append(row.note)
            mark += f" [{len(notes)}]"
        lines.append(_line(row, mark, with_store=with_store))
    return [*lines, "", *(f"{number}. {note}" for number, note in enumerate(notes, 1)), ""]


def _line(row: Row, mark: str, *, with_store: bool) -> str:
    ratio = _number(row.ratio)
    if row.ratio_low is not None and row.ratio_high is not None and row.rounds > 1:
        ratio += f" ({_number(row.ratio_low)} to {_number(row.ratio_high)})"
    verdict = "failed" if row.failed else {True: "yes", False: "**no**", None: ""}[row.is_met]
    cells = (
        row.what + mark,
        row.form,
        _number(row.per_second),
        _number(row.p50_ms),
        _number(row.p99_ms),
        ratio,
        row.yardstick,
        _number(row.cpu_us),
        *((_number(row.store_cpu_us),) if with_store else ()),
        _number(row.rss_mib),
        str(row.goal),
        verdict,
    )
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    """Formats a number with three significant digits."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _origins(rows: Sequence[tuple[Origin, Row]]) -> list[str]:
    found: dict[Origin, list[str]] = {}
    for origin, row in rows:
        names = found.setdefault(origin, [])
        if row.case not in names:
            names.append(row.case)
    lines = []
    for origin, names in found.items():
        scale = "" if origin.scale == 1.0 else f", scale {origin.scale:g}"
        lines.append(
            f"- {origin.date}, commit {origin.commit}, {origin.mode}{scale}: {', '.join(names)}"
        )
    machines = dict.fromkeys(origin.machine for origin in found if origin.machine)
    return [*lines, "", *(f"Machine: {machine}." for machine in machines)]
