"""Runs tests against one mutation in a forked process that has already imported the large libraries.

The parent imports pytest, Arrow, gRPC, Hypothesis and the generated messages, but nothing of Tarn; so a child
imports Tarn with the mutation, and starts in half a second. Tests that enter the mutated block run in batches, the
cheapest first, until one fails.

A busy machine must not make a slow mutant look like one that hangs. So the limit of a child is a multiple of the CPU
time that its tests use without the mutation; there is also a wall-clock limit far above it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import pytest
from tests.mutants.applying import MUTANT_ENV, ROOT, Mutation, install
from tests.mutants.mapping import SITE, default_place
from tests.mutants.noting import PROFILE, TIMES_ENV

__all__ = ["Fate", "Verdict", "batches", "preload", "try_tests"]

_LIBRARIES: Final = (
    "boto3",
    "botocore.session",
    "cassandra.cluster",
    "google.protobuf.descriptor",
    "grpc.aio",
    "httptools",
    "hypothesis",
    "hypothesis.stateful",
    "hypothesis.strategies",
    "lxml.etree",
    "numpy",
    "opentelemetry.sdk.metrics",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pytest_asyncio.plugin",
    "structlog",
    "uvloop",
    "yaml",
)
_PROTOS: Final = "gen/tarn_proto"

# A child's limits: a fixed part for starting, and a multiple of the time of its tests without the mutation.
_CPU_START_SECONDS: Final = 10.0
_CPU_TIMES: Final = 6.0
_WALL_START_SECONDS: Final = 60.0
_WALL_TIMES: Final = 12.0
_TEST_SECONDS_MIN: Final = 20.0
_POLL_SECONDS: Final = 0.02
# Seconds of tests in the first batches; all other tests are one more batch.
_BATCH_SECONDS: Final = (2.0, 12.0)


class Fate(Enum):
    """The fate of a mutant."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate of a mutant, and the test that decided it.

    Attributes:
        fate: the fate; a mutant that timed out counts as killed.
        test: the test that failed; "" for a survivor.
        tests: number of selected tests.
        seconds: wall-clock time.
    """

    fate: Fate
    test: str
    tests: int
    seconds: float


class _GoneError(Exception):
    """The map names tests that no longer exist."""

    def __init__(self, tests: set[str]) -> None:
        super().__init__(f"{len(tests)} tests are gone")
        self.tests = tests


def preload() -> None:
    """Imports the modules that every child needs and no mutation changes; compiles the others once, outside of the
    checkout."""
    sys.pycache_prefix = str(default_place().with_name("bytecode"))
    sys.dont_write_bytecode = False
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for path in sorted((ROOT / _PROTOS).rglob("*_pb2*.py")):
        importlib.import_module(
            ".".join(path.relative_to(ROOT / "gen").with_suffix("").parts),
        )
    gc.collect()
    gc.freeze()


def batches(
    tests: Iterable[str], seconds: dict[str, float], module: str, budget: float
) -> list[list[str]]:
    """Returns tests in the order in which to try them: near the module first, then cheap before expensive.

    Leaves out the last ones if all together would take longer than `budget` seconds.
    """
    ordered = sorted(tests, key=lambda test: (_distance(test, module), seconds[test], test))
    found: list[list[str]] = [[]]
    limits = list(_BATCH_SECONDS)
    spent = 0.0
    for test in ordered:
        budget -= seconds[test]
        if budget < 0 and found[0]:
            break
        if limits and found[-1] and spent + seconds[test] > limits[0]:
            limits.pop(0)
            spent = 0.0
            found.append([])
        found[-1].append(test)
        spent += seconds[test]
    return [batch for batch in found if batch]


def _distance(test: str, module: str) -> int:
    """Returns 0 for tests of this module, 1 for tests of its package, 2 for others, 3 for the simulator."""
    if test.startswith("tests/sim/"):
        return 3
    words = set(module.replace("tarn_", "").split("."))
    folders, _, rest = test.partition("::")[0].rpartition("/")
    if module.rpartition(".")[2] in rest and words & set(folders.split("/")):
        return 0
    return 1 if words & set(folders.split("/")) else 2


def try_tests(
    mutation: Mutation, groups: Sequence[Sequence[str]], seconds: dict[str, float]
) -> Verdict:
    """Runs groups of tests, one after the other, until one fails.

    Raises:
        RuntimeError: pytest did not take the tests, e.g. because one does not exist.
    """
    began = time.perf_counter()
    count = sum(len(group) for group in groups)
    for group in groups:
        fate, test = _try_group(mutation, group, seconds)
        if fate is not Fate.SURVIVED:
            return Verdict(fate, test, count, time.perf_counter() - began)
    return Verdict(Fate.SURVIVED, "", count, time.perf_counter() - began)


def _try_group(
    mutation: Mutation, group: Sequence[str], seconds: dict[str, float]
) -> tuple[Fate, str]:
    usual = sum(seconds.get(test, 0.0) for test in group)
    longest = max((seconds.get(test, 0.0) for test in group), default=0.0)
    left = list(group)
    while left:
        try:
            return _in_child(mutation, left, usual, longest)
        except _GoneError as error:
            left = [test for test in left if test not in error.tests]
    return Fate.SURVIVED, ""


def _in_child(
    mutation: Mutation | None, tests: Sequence[str], usual: float, longest: float
) -> tuple[Fate, str]:
    with tempfile.TemporaryDirectory() as folder:
        notes, output = Path(folder, "notes"), Path(folder, "output")
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _child(mutation, tests, notes, output, usual, longest)
        status = _wait(child, _WALL_START_SECONDS + _WALL_TIMES * usual)
        failed = _first_failed(notes)
        if status is None or os.WIFSIGNALED(status):
            return Fate.TIMED_OUT, "the limit of its process"
        code = os.WEXITSTATUS(status)
        if code in (0, 5):  # 5: every test was skipped
            return Fate.SURVIVED, ""
        if failed is not None:
            test, result = failed
            return (Fate.TIMED_OUT if result == "timeout" else Fate.KILLED), test
        if code in (1, 2, 3):
            return Fate.KILLED, "the modules cannot be imported"
        said = output.read_text()
        if gone := {test for test in tests if f"not found: {ROOT / test}\n" in said}:
            raise _GoneError(gone)
        raise RuntimeError(said[-4000:])


def _child(
    mutation: Mutation | None,
    tests: Sequence[str],
    notes: Path,
    output: Path,
    usual: float,
    longest: float,
) -> None:
    """Runs the tests in the child; never returns."""
    code = 70
    try:
        os.setsid()
        target = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(target, 1)
        os.dup2(target, 2)
        cpu = int(_CPU_START_SECONDS + _CPU_TIMES * usual)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        os.environ |= {
            TIMES_ENV: str(notes),
            "HYPOTHESIS_PROFILE": PROFILE,
            "PYTHONPATH": SITE,
            "PYTHONPYCACHEPREFIX": str(sys.pycache_prefix),
        }
        for name in ("PYTEST_CURRENT_TEST", "PYTHONDONTWRITEBYTECODE"):
            os.environ.pop(name, None)
        if mutation is not None:
            os.environ[MUTANT_ENV] = mutation.name
            install(mutation)
        os.chdir(ROOT)
        limit = max(_TEST_SECONDS_MIN, _WALL_TIMES * longest)
        options = [
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.mutants.noting",
            "--no-header",
        ]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += [f"--timeout={limit}", "--tb=line", "-m", "not cassandra and not spark"]
        code = int(pytest.main([*options, *tests]))
    except BaseException as error:  # noqa: BLE001 - the process ends here and tells why
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


def _wait(child: int, limit: float) -> int | None:
    """Waits for a child and ends the processes that it started; returns its status, None if it took too long."""
    until = time.monotonic() + limit
    status: int | None = None
    while time.monotonic() < until:
        done, found = os.waitpid(child, os.WNOHANG)
        if done:
            status = found
            break
        time.sleep(_POLL_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    return status


def _first_failed(notes: Path) -> tuple[str, str] | None:
    if not notes.exists():
        return None
    for line in notes.read_text().splitlines():
        test, _, result = line.rsplit("\t", 2)
        if result in ("failed", "timeout"):
            return test, result
    return None
