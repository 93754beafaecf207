import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tarn_cli.objects.transfer import run_all


def test_the_results_are_summed() -> None:
    assert run_all((partial(abs, -n) for n in range(101)), 4) == 5050


def test_only_a_few_items_per_worker_are_taken_ahead() -> None:
    release = threading.Event()
    taken = 0

    def work() -> Iterator[Callable[[], int]]:
        nonlocal taken
        for _ in range(1000):
            taken += 1
            if taken == 5:
                release.set()  # the first four fill what two workers may have ahead
            assert taken < 6 or release.is_set()
            yield lambda: int(release.wait(10))

    assert run_all(work(), 2) == 1000


def test_the_first_failure_stops_the_rest() -> None:
    done: list[int] = []

    def fail() -> int:
        raise OSError("disk full")

    def succeed(n: int) -> int:
        done.append(n)
        return 1

    def work() -> Iterator[Callable[[], int]]:
        yield fail
        for n in range(10_000):
            yield partial(succeed, n)

    with pytest.raises(OSError, match="disk full"):
        run_all(work(), 2)
    assert len(done) < 10_000
