"""`RESULTS.md` and its plots: the main figures, beside those of lakeFS.

Both are made from `results/load.json` (the last measurements here) and `results/lakefs.json` (the peer:
measured by us on a similar machine, or published by its makers). A figure without a measurement is left
out. `DETAILS.md` has every row, with goals and spreads (`table.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.load.chart import Series, bars, dots, lines
from bench.load.table import Origin, Row

__all__ = ["plots", "results_page"]

_OS, _FSYNC, _CASSANDRA = ", os", ", fsync", "metadata in Cassandra"
_CONNECTIONS = ("1", "4", "32", "128")


@dataclass(frozen=True, slots=True)
class _Figure:
    """A row that the page shows.

    Attributes:
        label: its name on the page.
        what: the row's operation.
        form: end of the row's `form`; selects the single node if there are several.
        peer: its name in `lakefs.json`; empty if the peer has none.
        value: `rate`, `p50` or `p99`.
    """

    label: str
    what: str
    form: str = _OS
    peer: str = ""
    value: str = "p50"


# Beside the raw loop, so ratios can be compared.
_SMALL = (
    _Figure("GET, 1 connection", "GET 1 KiB, 1 connection", peer="get-1"),
    _Figure("GET, 32 connections", "GET 1 KiB, 32 connections", peer="get-32", value="rate"),
    _Figure("HEAD, 32 connections", "HEAD 1 KiB, 32 connections", peer="head-32", value="rate"),
    _Figure("PUT, 1 connection", "PUT 1 KiB, 1 connection", peer="put-1"),
    _Figure("PUT, 32 connections", "PUT 1 KiB, 32 connections", peer="put-32", value="rate"),
    _Figure("PUT with fsync, 32", "PUT 1 KiB, 32 connections", _FSYNC, value="rate"),
    _Figure(
        "PUT, metadata in Cassandra, 32", "PUT 1 KiB, 32 connections", _CASSANDRA, value="rate"
    ),
)
_WHOLE = (
    _Figure("list 1,000 staged keys", "LIST 1,000 staged, 1 connection", peer="list-staged"),
    _Figure("list 1,000 committed", "LIST 1,000 committed, 1 connection", peer="list-committed"),
    _Figure(
        "list 1,000 behind 100,000 deletes",
        "LIST 1,000 behind 100,000 uncommitted deletes, 1 connection",
        peer="list-deletes",
    ),
    _Figure("PUT 64 MiB", "PUT 64 MiB, 1 connection", peer="put-large"),
    _Figure("GET 64 MiB", "GET 64 MiB, 1 connection", peer="get-large"),
    _Figure(
        "commit 1,000,000 entries",
        "commit of 1,000,000 staged entries on an empty branch",
        peer="commit-empty",
    ),
    _Figure(
        "commit 100,000 new in 1,000,000",
        "commit in 1,000,000: 100,000 new entries beside them",
        peer="commit-beside",
    ),
    _Figure(
        "commit 10,000 changes in 1,000,000",
        "commit in 1,000,000: 10,000 adjacent changes",
        peer="commit-adjacent",
    ),
    _Figure(
        "difference of 10,000 in 1,000,000",
        "difference of 10,000 changes in 1,000,000, all pages",
        peer="difference",
    ),
    _Figure("create a branch of 1,000,000", "create a branch of 1,000,000 entries", peer="branch"),
    _Figure(
        "PUT p99 beside a large commit",
        "PUT 1 KiB while a 1,000,000-entry commit runs, 4 connections",
        peer="put-in-commit",
        value="p99",
    ),
)

Rows = Sequence[tuple[Origin, Row]]
Peer = Mapping[str, Any]


def results_page(machine: str, rows: Rows, peer: Peer, beside: str = "", bulk: str = "") -> str:
    """Returns `RESULTS.md`: the tables, the plots of `plots`, and the sources of the figures.

    Args:
        machine: of the rows.
        rows: the last measurements.
        peer: figures of lakeFS, from another machine.
        beside: what `bench.peer` has written; empty: it was not run.
        bulk: what `bench.bulk` has written; likewise.
    """
    met = [row.is_met for _, row in rows if row.is_met is not None]
    made = plots(rows, peer)
    is_trial = any(origin.mode != "full" or origin.scale != 1.0 for origin, _ in rows)
    parts = [
        "# How fast Tarn is",
        "",
        "Made by `make bench` from [results/load.json](results/load.json) and "
        "[results/lakefs.json](results/lakefs.json). [DETAILS.md](DETAILS.md) has every row, "
        "[README.md](README.md) says how it is measured, and "
        "[performance.md](../docs/design/performance.md) why it is so.",
        "",
        f"{machine[:1].upper()}{machine[1:]}. Tarn is `tarn up`, durability `os` unless a row says `fsync`. "
        f"**{met.count(True)} of {len(met)} goals are met.**",
        "",
        *(("**A trial: too short or too small to be a result.**", "") if is_trial else ()),
        *_small_table(rows, peer, made),
        *_pictures(made, "get.svg", "put.svg"),
        *_whole_table(rows, peer, made),
        *(("## Beside lakeFS, in one run", "", beside) if beside else ()),
        *(
            ("## Large bodies beside nginx, lakeFS and a store, in one run", "", bulk)
            if bulk
            else ()
        ),
        *_peer_notes(peer),
    ]
    return "\n".join(parts)


def plots(rows: Rows, peer: Peer) -> dict[str, str]:
    """Returns the SVG files by name, without those whose figures are missing."""
    made: dict[str, str] = {}
    ours, shipped, undelayed = _ratios(rows, peer)
    if ours:
        made["small-requests.svg"] = bars(
            "Small requests: part of what a bare loop answers on the same machine",
            [figure.label for figure in _SMALL if figure.label in ours],
            [
                Series("Tarn", "tarn", ours),
                Series("lakeFS as shipped", "peer", shipped),
                Series("lakeFS, batch delay off", "peer", undelayed, hollow=True),
            ],
            "",
        )
    times = {f.label: _value(f, row) for f in _WHOLE if (row := _find(f, rows))}
    if times:
        theirs = {f.label: _peer_value(f, peer) for f in _WHOLE if f.label in times}
        known = {label: value for label, value in theirs.items() if value is not None}
        made["times.svg"] = dots(
            "Time of one operation (median; further left is better)",
            list(times),
            [Series("Tarn", "tarn", times), Series("lakeFS", "peer", known)],
            " ms",
        )
    for verb in ("GET", "PUT"):
        found = _by_connections(verb, rows)
        if found:
            title = f"{verb} of 1 KiB per second"
            made[f"{verb.lower()}.svg"] = lines(title, _CONNECTIONS, found, "connections")
    return made


def _small_table(rows: Rows, peer: Peer, made: Collection[str]) -> list[str]:
    lines_ = [
        "## Small requests (1 KiB)",
        "",
        *_pictures(made, "small-requests.svg"),
        "Absolute figures of two machines cannot be compared, so each stands beside its part of the *raw loop*: "
        "asyncio, httptools and uvloop that answer 1 KiB without looking at the request, in turns with "
        "Tarn and from the same client. CPU is the server's, per request.",
        "",
        "| | Tarn | of the loop | CPU µs | lakeFS as shipped | of the loop | batch delay off | of the loop | CPU µs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    ours, shipped, undelayed = _ratios(rows, peer)
    for figure in _SMALL:
        row = _find(figure, rows)
        if row is None:
            continue
        them = peer["measured"].get(figure.peer, {})
        label = figure.label
        cells = [
            label,
            _shown(figure, _value(figure, row)),
            _ratio(ours.get(label)),
            "" if row.cpu_us is None else f"{row.cpu_us:,.0f}",
            _shown(figure, _peer_value(figure, peer)),
            _ratio(shipped.get(label)),
            _shown(figure, _peer_value(figure, peer, "undelayed")),
            _ratio(undelayed.get(label)),
            them.get("cpu_us", ""),
        ]
        lines_.append("| " + " | ".join(cells) + " |")
    return [*lines_, ""]


def _whole_table(rows: Rows, peer: Peer, made: Collection[str]) -> list[str]:
    lines_ = [
        "## Listings, large objects, commits",
        "",
        *_pictures(made, "times.svg"),
        "| median of one client | Tarn | its goal | lakeFS | remark |",
        "|---|---|---|---|---|",
    ]
    for figure in _WHOLE:
        row = _find(figure, rows)
        if row is None:
            continue
        mine = _shown(figure, _value(figure, row))
        verdict = {True: f"{row.goal}: met", False: f"{row.goal}: **missed**", None: ""}[row.is_met]
        remarks = [peer["measured"].get(figure.peer, {}).get("note", "")]
        if figure.value == "p99":
            remarks.insert(0, f"Tarn: {row.yardstick}")
        theirs = _shown(figure, _peer_value(figure, peer))
        cells = (figure.label, mine, verdict, theirs, "; ".join(filter(None, remarks)))
        lines_.append("| " + " | ".join(cells) + " |")
    return [*lines_, ""]


def _pictures(made: Collection[str], *names: str) -> list[str]:
    """Returns links to those of the plots that exist."""
    found = [f"![{name.removesuffix('.svg')}](plots/{name})" for name in names if name in made]
    return [line for picture in found for line in (picture, "")]


def _peer_notes(peer: Peer) -> list[str]:
    loop = peer["raw_loop"]
    published = [f"| {one['what']} | {one['value']} | {one['how']} |" for one in peer["published"]]
    return [
        "## The peer",
        "",
        f"The columns above are our own measurement: {peer['build']}, on another machine "
        "of this kind (2 cores shared with the client), by a client in Go that replays signed requests over raw "
        f"sockets. There the raw loop answered {loop['1']:,}/s with one connection and {loop['32']:,}/s with 32; the "
        "peer's ratios are to these. With one connection the client's own turn-around counts: ratios of two "
        "clients differ by up to a third.",
        "",
        "lakeFS waits 3 ms for further readers before each read of a branch (`graveler.max_batch_delay`), hence two "
        "columns. The second table is as shipped, except PUT beside a commit, which was measured without the delay. "
        "Its embedded store does not sync to disk, so it stands beside Tarn with durability `os`.",
        "",
        "Published by its makers, on other and larger machines, so for orientation only; source: "
        f"{peer['published_in']}.",
        "",
        "| lakeFS | figure | how |",
        "|---|---|---|",
        *published,
        "",
    ]


def _find(figure: _Figure, rows: Rows) -> Row | None:
    """Returns the measured row of a figure; if there are several, the one with all cores."""
    for _, row in rows:
        right = row.form.endswith(figure.form) and row.form.startswith("single node")
        if row.what == figure.what and right and "own core" not in row.form and not row.failed:
            return row
    return None


def _value(figure: _Figure, row: Row) -> float:
    value = {"rate": row.per_second, "p50": row.p50_ms, "p99": row.p99_ms}[figure.value]
    assert value is not None, f"{row.what}: no {figure.value}"
    return value


def _peer_value(figure: _Figure, peer: Peer, mode: str = "shipped") -> float | None:
    found = peer["measured"].get(figure.peer, {})
    if figure.value == "p99":  # measured without the delay only
        mode = "undelayed"
    name = {"rate": "per_second", "p50": "p50_ms", "p99": "p99_ms"}[figure.value]
    value: float | None = found.get(mode, {}).get(name)
    return value


def _ratios(rows: Rows, peer: Peer) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Returns rates relative to the raw loop: Tarn's, the peer's as shipped, the peer's without delay."""
    ours: dict[str, float] = {}
    theirs: dict[str, dict[str, float]] = {"shipped": {}, "undelayed": {}}
    for figure in _SMALL:
        row = _find(figure, rows)
        if row is None or row.ratio is None or not row.yardstick.startswith("raw loop"):
            continue
        ours[figure.label] = row.ratio
        loop = peer["raw_loop"][figure.peer.rpartition("-")[2]] if figure.peer else 0
        for mode, ratios in theirs.items():
            rate = peer["measured"].get(figure.peer, {}).get(mode, {}).get("per_second")
            if rate is not None:
                ratios[figure.label] = rate / loop
    return ours, theirs["shipped"], theirs["undelayed"]


def _by_connections(verb: str, rows: Rows) -> list[Series]:
    forms = (
        ("single node, os", "tarn", "single node", _OS),
        ("single node, fsync", "second", "single node", _FSYNC),
        ("separate processes, os", "third", "separate", _OS),
    )
    found = []
    for name, hue, begin, end in forms:
        rates = {
            count: row.per_second
            for count in _CONNECTIONS
            for _, row in rows
            if row.what.removesuffix("s") == f"{verb} 1 KiB, {count} connection"
            and row.form.startswith(begin)
            and row.form.endswith(end)
            and "own core" not in row.form
            and row.per_second is not None
        }
        if rates:
            found.append(Series(name, hue, rates))
    return found


def _shown(figure: _Figure, value: float | None) -> str:
    if value is None:
        return ""
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number}/s" if figure.value == "rate" else f"{number} ms"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
