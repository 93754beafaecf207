"""Runs the tests of rare guards while their guards are off: `python -m tests.sim.weakened [GUARD…]`.

Prints one line of JSON for each guard (`Told`), and first one for all of their tests with every guard on, which have to
pass. Each run is a forked process of its own: the weakening is there before the tests are collected, and ends with the
process. Forks start fast, because this process has imported Tarn already.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest
from tests.mutants.running import preload
from tests.sim.rare_guards import DETECTED_BY, RARE_GUARDS, weakenings_of
from tests.support.faults.guards import Guard, switched_off

from tarn.core.errors import Kind, TarnError

__all__ = ["Failure", "Told", "is_expected", "run_tests"]

_EXPECTED: Final = (AssertionError, TarnError, pytest.fail.Exception)

_ROOT: Final = Path(__file__).parents[2]
_SECONDS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed test.

    Attributes:
        test: its id.
        phase: `collect`, `setup`, `call` or `teardown`.
        is_expected: the function `is_expected` holds for all errors.
        text: the errors.
    """

    test: str
    phase: str
    is_expected: bool
    text: str


@dataclass(frozen=True, slots=True)
class Told:
    """The outcome of one run.

    Attributes:
        guard: the guard that was off; "" if all were on.
        exit_code: of pytest.
        collected: number of tests.
        output: of pytest, its end.
    """

    guard: str
    exit_code: int
    collected: int
    failures: Sequence[Failure]
    output: str = ""

    @property
    def is_detected(self) -> bool:
        """Whether the tests ran and failed because of what they check."""
        return (
            self.exit_code == pytest.ExitCode.TESTS_FAILED
            and self.collected > 0
            and bool(self.failures)
            and all(each.phase == "call" and each.is_expected for each in self.failures)
        )


def is_expected(error: BaseException) -> bool:
    """Whether a test says by this error that a promise is broken.

    Any other error says that a weakening does not fit the code: its call fails, or a test waits for a step that never
    comes.
    """
    return isinstance(error, _EXPECTED) and not (
        isinstance(error, TarnError) and error.kind is Kind.INTERNAL
    )


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


@dataclass(eq=False)  # pytest hashes plugins
class _Noting:
    """A plugin of pytest that notes which tests fail, and by which errors."""

    collected: int = 0
    failures: list[Failure] = field(default_factory=list)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failures.append(Failure(report.nodeid, "collect", False, report.longreprtext))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected = len(session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and call.excinfo is not None:
            errors = list(_leaves(call.excinfo.value))
            text = "\n".join(f"{type(each).__name__}: {each}" for each in errors)
            all_expected = all(map(is_expected, errors))
            self.failures.append(Failure(item.nodeid, call.when, all_expected, text))
        return report


def run_tests(guard: Guard | None, tests: Iterable[str]) -> Told:
    """Runs tests in a process of their own, with a guard off.

    Raises:
        RuntimeError: the process ended without an answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, output = Path(folder, "answer"), Path(folder, "output")
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            _child(guard, list(tests), answer, output)
        os.waitpid(child, 0)
        said = output.read_text()[-4000:]
        if not answer.exists():
            raise RuntimeError(f"the process of the tests ended without an answer:\n{said}")
        found = json.loads(answer.read_text())
    failures = [Failure(**each) for each in found.pop("failures")]
    return Told(**{**found, "failures": failures, "output": said})


def _child(guard: Guard | None, tests: Sequence[str], answer: Path, output: Path) -> None:
    """Runs the tests in the child; never returns."""
    try:
        target = os.open(output, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(target, 1)
        os.dup2(target, 2)
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        os.chdir(_ROOT)
        noting = _Noting()
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=short"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", f"--timeout={_SECONDS_MAX}"]
        with ExitStack() as stack:
            if guard is not None:
                alone = replace(guard, weakenings=weakenings_of(guard))
                stack.enter_context(switched_off(alone))
            code = int(pytest.main([*options, *tests], plugins=[noting]))
        told = Told(guard.name if guard else "", code, noting.collected, noting.failures)
        answer.write_text(json.dumps(asdict(told)))
    except BaseException as error:  # noqa: BLE001 - the process ends here and tells why
        os.write(2, repr(error).encode())
    finally:
        os._exit(0)


def main(names: Sequence[str]) -> None:
    """See the module."""
    preload()
    guards = [guard for guard in RARE_GUARDS if not names or guard.name in names]
    tests = dict.fromkeys(DETECTED_BY[guard.name] for guard in guards)
    runs = [(None, [*tests]), *((guard, [DETECTED_BY[guard.name]]) for guard in guards)]
    for guard, chosen in runs:
        sys.stdout.write(json.dumps(asdict(run_tests(guard, chosen))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
