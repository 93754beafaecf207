"""Runs a target in a child process, notices when the child dies or hangs, and keeps the input that caused
it.

The child reports bugs of Python code as tracebacks. If an input kills the child (a C library read outside
its memory) or never returns (C code does not react to the alarm), the input is read from the mailbox;
another child continues for the remaining time.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from tests.support.fuzz.child import Orders
from tests.support.fuzz.mailbox import Mailbox
from tests.support.fuzz.minimising import minimised
from tests.support.fuzz.session import Bug, Statistics
from tests.support.fuzz.target import target_of

__all__ = ["Finding", "Fuzzer", "Report"]

_POLL_S = 0.2
_DEATHS_MAX = 3
_REPLAYS_MAX = 12
_CPU_FACTOR = 4
"""Time after the child's own alarm, after which an input counts as hung in C."""
_SILENCE_S = 180.0
"""Wall time without a new input after which a child counts as blocked."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Finding:
    """A bug, and the file that its input was saved in."""

    bug: Bug
    path: Path


@dataclass(slots=True)
class Report:
    """The result of a run."""

    target: str
    seed: int
    findings: list[Finding] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)


class Fuzzer:
    """Runs one target.

    Args:
        reference: the target, as `module:NAME`; the child imports it from `folder`.
        folder: working directory of the children.
        corpus: the target's folder of inputs that are tried first; may be missing.
        findings: folder for inputs that found a bug; created when there is one.
    """

    def __init__(self, reference: str, *, folder: Path, corpus: Path, findings: Path) -> None:
        self._reference = reference
        self._target = target_of(reference)
        self._folder = folder
        self._findings = findings
        self._corpus = sorted(str(path) for path in corpus.glob("*")) if corpus.is_dir() else []

    def run(
        self,
        *,
        seed: int,
        seconds: float,
        inputs_max: int | None = None,
        first_bug: bool = False,
    ) -> Report:
        """Fuzzes for some seconds, or for a number of inputs."""
        report = Report(self._target.name, seed)
        with tempfile.TemporaryDirectory(prefix="tarn-fuzz-") as work:
            orders = Orders(
                target=self._reference,
                seed=seed,
                seconds=seconds,
                inputs_max=inputs_max,
                corpus=tuple(self._corpus),
                mailbox=f"{work}/mailbox",
                results=f"{work}/results",
                first_bug=first_bug,
            )
            end = time.monotonic() + seconds
            for death in range(_DEATHS_MAX):
                killer = self._child(replace(orders, seed=seed + death), report)
                if killer is None:
                    break
                self._keep(report, replace(killer, data=self._smaller(orders, killer)))
                # A fatal file is not tried again; the next seed makes other inputs.
                left = [name for name in orders.corpus if Path(name).read_bytes() != killer.data]
                orders = replace(orders, corpus=tuple(left), seconds=end - time.monotonic())
                if first_bug or orders.seconds <= 0:
                    break
        return report

    def replay(self, paths: Sequence[Path]) -> Report:
        """Tries only the given files."""
        self._corpus = [str(path) for path in paths]
        return self.run(seed=0, seconds=0, inputs_max=0)

    def _child(self, orders: Orders, report: Report) -> Bug | None:
        """Runs one child; returns the input that killed it, if any."""
        mailbox = Mailbox(Path(orders.mailbox), self._target.input_bytes_max)
        results, errors = Path(orders.results), Path(orders.results + ".errors")
        results.write_bytes(b"")
        with errors.open("w+b") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fuzz.child"],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stderr=stderr,
                stdout=stderr,
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(asdict(orders)).encode() + b"\n")
                process.stdin.close()
                is_hung = self._watch(process, mailbox)
            finally:
                process.kill()
                process.wait()
        story = errors.read_text(errors="replace")[-4000:]
        self._collect(results, report)
        try:
            if process.returncode == 0:
                return None
            if process.returncode > 0:
                raise RuntimeError(f"the fuzzer of {self._target.name} itself failed: {story}")
            report.statistics.inputs += mailbox.count
            reason = signal.Signals(-process.returncode).name
            signature = "hang in C" if is_hung else f"death by {reason}"
            return Bug(f"{signature}{_place(story)}", mailbox.last, story)
        finally:
            mailbox.close()

    def _watch(self, process: subprocess.Popen[bytes], mailbox: Mailbox) -> bool:
        """Waits for the end of a child; returns whether it had to be killed."""
        count, since, cpu = 0, time.monotonic(), 0.0
        while True:
            try:
                process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                pass
            else:
                return False
            now = time.monotonic()
            used = _cpu_s(process.pid)
            if mailbox.count != count or not count:
                count, since, cpu = mailbox.count, now, used
            is_busy = count and used - cpu > self._target.cpu_s * _CPU_FACTOR
            if is_busy or now - since > _SILENCE_S:
                process.send_signal(signal.SIGABRT)  # faulthandler says where it is
                process.wait(10)
                return True

    def _collect(self, results: Path, report: Report) -> None:
        for line in results.read_text().splitlines():
            kind, value = json.loads(line).popitem()
            if kind == "bug":
                data = base64.b64decode(value["data"])
                self._keep(report, Bug(value["signature"], data, value["story"]))
            else:
                value["inputs"] += report.statistics.inputs
                report.statistics = Statistics(**value)

    def _keep(self, report: Report, bug: Bug) -> None:
        """Saves the input of a bug that is new in this run."""
        if any(finding.bug.signature == bug.signature for finding in report.findings):
            return
        self._findings.mkdir(parents=True, exist_ok=True)
        path = self._findings / hashlib.sha256(bug.data).hexdigest()[:16]
        path.write_bytes(bug.data)
        path.with_suffix(".txt").write_text(f"{bug.signature}\n\n{bug.story}\n")
        report.findings.append(Finding(bug, path))

    def _smaller(self, orders: Orders, killer: Bug) -> bytes:
        """Minimises a fatal input; each try is a process, so there are few."""
        if killer.signature.startswith("hang"):
            return killer.data
        path = Path(orders.mailbox).with_name("candidate")

        def kills(data: bytes) -> bool:
            path.write_bytes(data)
            replay = replace(orders, corpus=(str(path),), inputs_max=0)
            return self._child(replay, Report("", 0)) is not None

        return minimised(killer.data, kills, _REPLAYS_MAX)


def _cpu_s(pid: int) -> float:
    """Returns the processor time that a child has used, in seconds; 0 after it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _place(story: str) -> str:
    """Returns the innermost Python frame in the output of faulthandler."""
    found = re.search(r'File "([^"]+)", line (\d+) in (\w+)', story)
    return f" in {Path(found[1]).name}:{found[3]}:{found[2]}" if found else ""
