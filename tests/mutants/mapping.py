"""The test map: which tests enter which block of the mutated code, and how long each takes.

One run of the tests, with a call at the start of each block, makes the map. It is kept outside of the checkout.
A mutant then runs only the tests that enter its block. For a module that has changed since, all tests run that
entered any of its blocks.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.applying import HITS_ENV, ROOT, block_of_line, module_of, source_files
from tests.mutants.noting import PROFILE, TIMES_ENV

__all__ = ["SITE", "TESTS", "TestMap", "default_place", "digest_of", "make_map"]

SITE: Final = str(ROOT / "tests/mutants/site")

# Tests without Cassandra, Spark, and processes of Tarn, except the process that builds large commits.
TESTS: Final = (
    "tests/unit/core",
    "tests/unit/aio",
    "tests/unit/kv",
    "tests/unit/block",
    "tests/unit/graveler",
    "tests/unit/gateway",
    "tests/unit/objects",
    "tests/unit/client",
    "tests/unit/snapshot",
    "tests/unit/cli/test_audited.py",
    "tests/unit/cli/test_backup.py",
    "tests/unit/collection/test_erasing.py",
    "tests/contract/test_kv_mem.py",
    "tests/contract/test_kv_embedded.py",
    "tests/contract/test_kv_embedded_crash.py",
    "tests/contract/test_block_mem.py",
    "tests/contract/test_block_local.py",
    "tests/contract/test_block_local_processes.py",
    "tests/crash/test_block_local.py",
    "tests/crash/test_kv_embedded.py",
    "tests/fuzz/test_targets.py",
    "tests/sim/test_simulation.py::test_no_promise_is_broken",
)
_TEST_SECONDS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class TestMap:
    """The result of one run of the tests.

    Attributes:
        entered: for each module and block (`module#number`) the tests that enter it.
        seconds: duration of each test that passed.
        digests: digest of the source of each module at that time.
    """

    __test__ = False  # pytest takes classes named Test… for tests

    entered: dict[str, list[str]]
    seconds: dict[str, float]
    digests: dict[str, str]

    def tests_of(self, module: str, source: str, line: int) -> set[str]:
        """Returns the tests that enter the block of a line."""
        block = block_of_line(ast.parse(source), line)
        if block is not None and self.digests.get(module) == digest_of(source):
            tests = self.entered.get(f"{module}#{block}", [])
            return {test for test in tests if test in self.seconds}
        return {
            test
            for name, tests in self.entered.items()
            if name.startswith(f"{module}#")
            for test in tests
            if test in self.seconds
        }

    def renewed(self, newer: TestMap) -> TestMap:
        """Returns this map, updated with a later run of some of the tests."""
        changed = {
            module for module, digest in newer.digests.items() if self.digests.get(module) != digest
        }
        entered = {
            block: [test for test in tests if test not in newer.seconds]
            for block, tests in self.entered.items()
            if block.partition("#")[0] not in changed
        }
        for block, tests in newer.entered.items():
            entered[block] = [*entered.get(block, []), *tests]
        return TestMap(entered, self.seconds | newer.seconds, newer.digests)

    def save(self, place: Path) -> None:
        """Writes the map."""
        place.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "entered": self.entered,
            "seconds": self.seconds,
            "digests": self.digests,
        }
        place.write_text(json.dumps(content))

    @classmethod
    def load(cls, place: Path) -> TestMap:
        """Reads a map. Raises `FileNotFoundError`."""
        return cls(**json.loads(place.read_text()))


def default_place() -> Path:
    """Returns the path of this checkout's map, in the folder for temporary files."""
    name = f"tarn-mutants-{os.getuid()}-{digest_of(str(ROOT))[:12]}"
    return Path(tempfile.gettempdir()) / name / "map.json"


def digest_of(text: str) -> str:
    """Returns a digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def make_map(tests: Sequence[str] = ()) -> TestMap:
    """Runs tests once, all if none are given, and records the blocks that they enter.

    Raises:
        RuntimeError: the tests cannot be run.
    """
    with tempfile.TemporaryDirectory() as folder:
        hits, times = Path(folder, "hits"), Path(folder, "times")
        digests = {module_of(path): digest_of(path.read_text()) for path in source_files()}
        environment = {
            **os.environ,
            HITS_ENV: str(hits),
            TIMES_ENV: str(times),
            "HYPOTHESIS_PROFILE": PROFILE,
            "PYTHONPATH": SITE,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "tests.mutants.noting", "-m", "not cassandra and not spark"]
        command += [f"--timeout={_TEST_SECONDS_MAX}", *(tests or TESTS)]
        ran = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        if ran.returncode not in (0, 1):
            raise RuntimeError(f"the tests could not be run: pytest ended with {ran.returncode}")
        return _read(hits, times, digests)


def _read(hits: Path, times: Path, digests: dict[str, str]) -> TestMap:
    entered: defaultdict[str, list[str]] = defaultdict(list)
    for line in hits.read_text().splitlines():
        block, _, test = line.partition("\t")
        if test not in entered[block]:
            entered[block].append(test)
    seconds, failed = {}, set()
    for line in times.read_text().splitlines():
        test, duration, result = line.rsplit("\t", 2)
        if result == "passed":
            seconds[test] = float(duration)
        else:
            failed.add(test)
    passed = {test: duration for test, duration in seconds.items() if test not in failed}
    return TestMap(dict(entered), passed, digests)
