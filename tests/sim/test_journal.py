"""Runs whose replicas keep events and drain them, under all faults: each row and record has its event, and each
acknowledged write is in the files (docs/design/journal.md).
"""

from collections.abc import AsyncIterator, Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import pytest
from tests.sim.plan import Plan, planned
from tests.sim.run import run_plan
from tests.support.faults.modes import Mode

from tarn.kv.drop_records import Drop
from tarn.kv.port import Group, Partition
from tarn.kv.record_events import JournaledKv
from tarn.kv.record_kinds import RecordKind
from tarn_graveler.branch.object_events import Mutation
from tarn_graveler.branch.staging import Staging
from tarn_graveler.journal.draining import Drain
from tarn_graveler.journal.records import DrainedRecord, RecordEvents
from tarn_proto.store.v1 import journal_pb2 as pb

_OPERATIONS = {
    "put": {pb.JOURNAL_OPERATION_PUT, pb.JOURNAL_OPERATION_COPY},
    "delete": {pb.JOURNAL_OPERATION_DELETE},
    "complete": {pb.JOURNAL_OPERATION_COMPLETE_UPLOAD},
}


_SEEDS = (2, 1, 3)
"""The histories of these runs are explained soon."""


def plan_of(seed: int, store: str) -> Plan:
    return replace(planned(seed, Mode.DRAWN), store=store, keeps_events=True)


def _problems(store: str) -> list[str]:
    """Returns the problems that the rule reports in the first run that has some."""
    for seed in _SEEDS:
        told = [each.text for each in run_plan(plan_of(seed, store)).violations]
        if found := [text for text in told if "event" in text]:
            return found
    return []


@pytest.mark.parametrize("seed", _SEEDS[:2])
@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_each_row_has_its_event(store: str, seed: int) -> None:
    run = run_plan(plan_of(seed, store))
    assert not run.violations
    assert run.report.statistics["journal: events"] > 10
    assert run.report.statistics["journal: events of records"] > 10
    assert run.report.statistics["journal: events of records removed"] > 10


class _Behind:
    """Writes the events of a batch with the next one, as a journal would that collects them."""

    def __init__(self) -> None:
        self._waiting: dict[Staging, tuple[Partition, list[Group]]] = {}

    def __get__(self, staging: Staging, _: type) -> Callable[..., Any]:
        return partial(self.write, staging)

    async def write(
        self, staging: Staging, _: str, rows: Sequence[tuple[Partition, Group]]
    ) -> Sequence[Exception | None]:
        partition, groups = rows[0][0], [group for _, group in rows]
        if staging in self._waiting:
            await staging._kv.set_many(*self._waiting.pop(staging))
        bare = [replace(group, companions=()) for group in groups]
        outcomes = await staging._kv.set_many(partition, bare)
        notes = [replace(group, rows=((b"told/" + group.anchor, b""),)) for group in groups]
        self._waiting[staging] = (partition, notes)
        return outcomes


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_an_event_of_a_request_of_its_own_is_missed(store: str) -> None:
    """The guard: the event is in the request of the row."""
    with mock.patch.object(Staging, "_write_together", _Behind()):
        assert _problems(store)


@pytest.mark.parametrize("operation", ["put", "delete", "complete"])
def test_a_mutation_without_an_event_is_noticed(operation: str) -> None:
    """Of each kind of mutation."""
    companions = Mutation.companions

    def forgotten(self: Mutation, path: str, payload: bytes) -> tuple[tuple[bytes, bytes], ...]:
        made = companions(self, path, payload)
        return () if self._operation in _OPERATIONS[operation] else made

    with mock.patch.object(Mutation, "companions", forgotten):
        assert _problems("sqlite")


def test_a_record_without_events_is_noticed() -> None:
    """More of such in `test_record_events`."""
    kind_of = JournaledKv._kind

    def forgetful(self: JournaledKv, partition: Partition, key: bytes) -> RecordKind | None:
        return None if key.startswith(b"branches/") else kind_of(self, partition, key)

    with mock.patch.object(JournaledKv, "_kind", forgetful):
        assert any("newest event" in text for text in _problems("sqlite"))


def _is_noticed(store: str, text: str) -> bool:
    """Whether one of the runs reports a problem; with enough rounds, of which some fail."""
    runs = (run_plan(plan_of(seed, store)) for seed in _SEEDS)
    return any(text in each.text for run in runs for each in run.violations)


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_an_event_that_is_removed_before_its_file_is_noticed(store: str) -> None:
    """The guard: the file before removal. A process that dies in between has lost it."""
    of = RecordEvents.of

    async def hasty(
        self: RecordEvents, root: str, in_files: Container[bytes]
    ) -> AsyncIterator[DrainedRecord]:
        found = [each async for each in of(self, root, in_files)]
        await self.finish([replace(each, row=None, is_in_file=True) for each in found])
        for each in found:
            yield each

    with mock.patch.object(RecordEvents, "of", hasty):
        assert _is_noticed(store, "is removed, and is in no file")


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_an_event_that_is_removed_and_was_not_drained_is_noticed(store: str) -> None:
    """The guard: exactly its events. Here all that the partition holds when the file is there."""
    finish = RecordEvents.finish

    async def greedy(self: RecordEvents, drained: Sequence[DrainedRecord]) -> None:
        await finish(self, drained)
        for each in {each.registration.partition: each.registration for each in drained}.values():
            held = await self._kv.scan_companions(each.partition, b"", None, 1_000)
            names = [
                (pb.JournalEvent.FromString(found.value).key.encode(), found.key) for found in held
            ]
            await self._kv.delete_companions(each.partition, names)

    with mock.patch.object(RecordEvents, "finish", greedy):
        assert _is_noticed(store, "is removed, and is in no file")


async def _no_rounds(self: Drain) -> None:
    """Leaves everything to the last scans of tokens."""


@pytest.mark.parametrize("store", ["sqlite", "cassandra"])
def test_last_scans_alone_lose_nothing(store: str) -> None:
    """Rounds only keep the files close behind."""
    with mock.patch.object(Drain, "run", _no_rounds):
        assert not run_plan(plan_of(2, store)).violations


async def _as_if_drained(self: Drain, drops: Sequence[Drop]) -> list[Drop]:
    return list(drops)


def test_a_token_that_is_dropped_before_it_is_drained_is_noticed() -> None:
    with (
        mock.patch.object(Drain, "run", _no_rounds),
        mock.patch.object(Drain, "last_scans", _as_if_drained),
    ):
        told = [each.text for each in run_plan(plan_of(2, "sqlite")).violations]
    assert any("no event is in the files" in text for text in told)
