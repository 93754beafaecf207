"""The limit of open files is raised at the start of a process, within a bound."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tarn.rpc.process.open_files import OPEN_FILES_MAX, attainable_open_files, raise_open_files

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 4096, 4096),
        (1024, 20_000, 20_000),
        (1024, 1_000_000_000, OPEN_FILES_MAX),
        (1024, NONE, OPEN_FILES_MAX),
        (OPEN_FILES_MAX + 1, 1_000_000, OPEN_FILES_MAX + 1),
        (4096, 4096, 4096),
        (NONE, NONE, OPEN_FILES_MAX),
    ],
)
def test_the_soft_limit_becomes_the_hard_one_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, after: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    assert attainable_open_files() == after
    assert raise_open_files() == after
    assert limits[-1] == ((after, hard) if soft not in (after, NONE) else (soft, hard))


def test_a_system_that_refuses_leaves_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_open_files() == 1024


PROGRAM = """
import resource
hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 3000)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from tarn.rpc.process.open_files import raise_open_files
assert raise_open_files() == hard
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
files = [open("/dev/null") for _ in range(300)]
"""


def test_a_process_opens_more_files_than_it_was_started_for() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=30)
