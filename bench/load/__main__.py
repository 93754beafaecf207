"""`make bench`: measures the whole system and writes `bench/RESULTS.md`, its plots and `bench/DETAILS.md`.

    python -m bench.load [--quick] [--cases put,get] [--scale 0.01] [--folder DIR] [--list] [--render]

A quick run, or a run with another scale, is not a result: it writes the same pages below `.bench/`.

Each case runs in its own process with a time limit, and in a folder that is removed afterwards. A case
that fails or exceeds its time stays in the table with a note and the rows that it had measured until
then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load.cases import CASES
from bench.load.page import plots, results_page
from bench.load.table import Goal, Origin, Results, Row, render
from bench.load.trial import Case

from tarn.rpc.process.system import SystemClock

HERE = Path(__file__).parents[1]
_TRIALS = HERE.parent / ".bench"
_PEER = HERE / "results" / "lakefs.json"
_BESIDE = HERE / "results" / "peer.md"
_BULK = HERE / "results" / "bulk.md"
_QUICK_LIMIT_S = 60
_STOP_SECONDS = 75
_TAIL_LINES = 40


def main() -> int:
    """Runs the cases; returns 1 if one failed. A missed goal is not a failure: the table shows it."""
    options = parsed(sys.argv[1:])
    wanted = _chosen(options)
    if options.list:
        print("\n".join(f"{case.name:20} up to {case.limit_s} s" for case in wanted))
        return 0
    folder = output_folder(options)
    results = Results(folder / "results" / "load.json")
    if options.render:
        write_pages(results, folder)
        return 0
    origin = Origin(
        time.strftime("%Y-%m-%d", time.gmtime(SystemClock().now_us() / 1e6)),
        _commit(),
        options.scale,
        "quick" if options.quick else "full",
        _machine(),
    )
    failed = False
    for number, case in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] {case.name}", flush=True)
        rows, trouble = _run(case, options)
        if trouble:
            failed = True
            print(f"  {trouble}", flush=True)
            rows.append(Row(case.name, case.name, note=trouble, failed=True))
        failed = failed or any(row.failed for row in rows)
        results.replace(case.name, origin, rows)
        results.save()
        write_pages(results, folder)
    print(f"the figures are in {folder / 'RESULTS.md'}, every row in {folder / 'DETAILS.md'}")
    return int(failed)


def output_folder(options: argparse.Namespace) -> Path:
    """Returns the folder of pages and data: beside this package only if sizes and rounds are the full ones."""
    if options.output is not None:
        return Path(options.output)
    return _TRIALS if options.quick or options.scale != 1.0 else HERE


def write_pages(results: Results, folder: Path) -> None:
    """Writes `RESULTS.md`, `DETAILS.md` and `plots/` from the last measurements; reads nothing else."""
    rows = results.of([case.name for case in CASES])
    peer = json.loads(_PEER.read_text())
    machines = dict.fromkeys(origin.machine for origin, _ in rows if origin.machine)
    sections = {case.name: case.section for case in CASES}
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for name, picture in plots(rows, peer).items():
        (folder / "plots" / name).write_text(picture)
    beside, bulk = (each.read_text() if each.exists() else "" for each in (_BESIDE, _BULK))
    (folder / "RESULTS.md").write_text(results_page("; ".join(machines), rows, peer, beside, bulk))
    (folder / "DETAILS.md").write_text(render(rows, sections))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Parses the options of a command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.load", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the main figures in two minutes")
    parser.add_argument("--cases", default="", help="only these, separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="smaller sizes, for trials: 0.01")
    parser.add_argument("--folder", type=Path, help="folder for temporary data")
    parser.add_argument("--output", type=Path, help="folder of the pages and their data")
    parser.add_argument(
        "--render", action="store_true", help="write the pages again without measuring"
    )
    parser.add_argument("--list", action="store_true", help="show the cases")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Case]:
    named = [name for name in options.cases.split(",") if name]
    known = {case.name: case for case in CASES}
    if unknown := sorted(set(named) - set(known)):
        sys.exit(f"no case {', '.join(unknown)}; there are {', '.join(known)}")
    if named:
        return [known[name] for name in named]
    return [case for case in CASES if case.quick or not options.quick]


def _run(case: Case, options: argparse.Namespace) -> tuple[list[Row], str]:
    """Runs a case; returns its rows, and the reason if it failed."""
    folder = Path(tempfile.mkdtemp(prefix="tarn-bench-", dir=options.folder))
    rows = folder / "rows.json"
    rows.touch()
    mode = "quick" if options.quick else "full"
    limit_s = _QUICK_LIMIT_S if options.quick else case.limit_s
    command = [sys.executable, "-m", "bench.load.one", case.name, str(folder / "work"), str(rows)]
    (folder / "work").mkdir()
    said = folder / "said.log"
    with said.open("wb") as errors:
        process = subprocess.Popen(
            [*command, str(options.scale), mode], cwd=HERE.parent, stderr=errors
        )
    trouble = ""
    try:
        if process.wait(limit_s):
            trouble = f"failed: {_last_words(said)}"
    except subprocess.TimeoutExpired:
        trouble = f"exceeded its limit of {limit_s} s"
    finally:
        _end(process)
        made = [json.loads(line) for line in rows.read_text().splitlines()]
        shutil.rmtree(folder, ignore_errors=True)
    return [Row(**{**row, "goal": Goal(**row["goal"])}) for row in made], trouble


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a case: first as by Ctrl-C, so that it stops its servers; then by force, which ends them as well."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_words(said: Path) -> str:
    """Prints the end of a case's output, and returns its last line."""
    lines = said.read_text(errors="replace").splitlines()[-_TAIL_LINES:] or ["it printed nothing"]
    print("\n".join(lines), flush=True)
    return lines[-1].replace("|", "/")[:300]


def _commit() -> str:
    """Returns the commit of the measured code, with `+` if the tree has changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "safe.directory=*", *arguments]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../libs", "../services")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def _machine() -> str:
    """Describes processor, cores, memory and system, without a host name."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cores = len(os.sched_getaffinity(0))
    system = f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    return f"{cores} cores, {model}, {memory:.0f} GiB, {system}; client and server share the cores"


if __name__ == "__main__":
    sys.exit(main())
