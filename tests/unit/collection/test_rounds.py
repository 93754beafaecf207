"""Rounds of collections: which phase of which repository."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tarn.collection import rounds
from tarn.collection.collector import Step
from tarn.collection.quarantine import Tally
from tarn.collection.rounds import Failed, Marked, Purged, Round, collect
from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.graveler.v1.erasure_service_pb2 import DoomedNamespace


class Collector:
    """Marks; the repositories in `held` are refused."""

    def __init__(self, *held: str) -> None:
        self.held = held
        self.call = self.blocks = self.rng = self.progress = None
        self.clock = SimpleNamespace(now_us=lambda: 10)
        numbers = itertools.count()
        self.ids = SimpleNamespace(uuid7=lambda: bytes([next(numbers)]))

    async def mark(self, name: str, *, dry_run: bool = False) -> Any:
        if name in self.held:
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_HELD, f"{name} is held")
        return "manifest"

    async def record(self, _name: str) -> Any:
        return SimpleNamespace(mark_run_id="", last_mark=SimpleNamespace(note=""))


class Purger:
    """Notes the attempts."""

    attempts: list[str]
    clock = SimpleNamespace(now_us=lambda: 10)

    def __init__(self, *_: object) -> None:
        Purger.attempts = []

    async def doomed(self) -> list[DoomedNamespace]:
        return [DoomedNamespace(storage_namespace=f"local://{name}") for name in "ab"]

    async def purge(self, doomed: DoomedNamespace, attempt: str) -> Any:
        if doomed.storage_namespace.endswith("a"):
            Purger.attempts.append(attempt)
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, "damaged")
        Purger.attempts.append(attempt)
        return SimpleNamespace(is_complete=True, deleted=Tally())


async def names(*found: str) -> AsyncIterator[str]:
    for name in found:
        yield name


async def run(round_: Round, collector: Collector, *found: str) -> Any:
    return await collect(round_, cast("Any", collector), cast("Any", None), lambda: names(*found))


async def test_each_purge_is_an_attempt_of_its_own_and_the_first_error_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "Purger", Purger)
    results, failed = await run(Round(phase=Step.PURGE), Collector(), "lake")
    assert [type(each) for each in results] == [Purged, Purged]
    assert len(set(Purger.attempts)) == 2
    assert failed is results[0].error


async def test_a_held_repository_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "Purger", Purger)
    results, failed = await run(Round(phase=Step.MARK), Collector("b"), "a", "b", "c")
    assert [(type(each), each.repository) for each in results] == [
        (Marked, "a"),
        (Failed, "b"),
        (Marked, "c"),
    ]
    assert failed is not None
    assert failed.reason is Reason.COLLECTION_HELD


async def test_the_only_repository_fails_the_round() -> None:
    with pytest.raises(TarnError, match="held"):
        await run(Round(("b",)), Collector("b"))


@pytest.mark.parametrize("phase", [Step.PURGE, Step.WAIT])
def test_a_phase_that_no_repository_has_is_refused(phase: Step) -> None:
    with pytest.raises(ValueError, match="no phase of a repository"):
        Round(("lake",), phase)
