import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tarn_cli.objects.local_files import FileRefusedError
from tarn_cli.objects.transfer import Advance, Tally, Transfer, run_all


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


def test_a_refused_file_does_not_keep_the_others() -> None:
    moved: list[int] = []

    def refuse(_advance: Advance) -> None:
        raise FileRefusedError("is a device")

    def succeed(advance: Advance) -> None:
        advance(3)

    tally = Tally()
    transfers = [Transfer(str(n), 3, refuse if n % 2 else succeed) for n in range(6)]
    assert run_all((each.bound(moved.append, tally) for each in transfers), 2) == 3
    assert (tally.done, sum(moved)) == (3, 9)
    assert sorted(tally.refused) == [(str(n), "is a device") for n in (1, 3, 5)]
