"""Runs whose metadata store is lost and rebuilt from the bucket by production's code (`tests.sim.rebuilding`)."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from tests.sim.rebuilding import loss_plan, loss_run
from tests.support.faults.modes import Mode

from tarn.core.branch import Branch
from tarn.journal.reading import EpochReader
from tarn.kv.records import Repository
from tarn_graveler.journal.draining import Drain
from tarn_graveler.rebuild.repository import _Work

pytestmark = pytest.mark.timeout(600)

_SEEDS = (("sqlite", 0), ("sqlite", 2), ("sqlite", 10), ("cassandra", 2))
"""Cheap ones: the processes of the lost store are gone, go on, pause, and go on."""
_MORE = (
    *(("sqlite", seed) for seed in (1, *range(3, 10), *range(11, 21))),
    *(("cassandra", seed) for seed in (0, 1, *range(3, 10))),
)


@pytest.mark.parametrize(
    ("store", "seed"),
    [*_SEEDS, *(pytest.param(*each, marks=pytest.mark.long) for each in _MORE)],
)
def test_a_lost_store_is_rebuilt_and_goes_on(store: str, seed: int) -> None:
    run = loss_run(loss_plan(seed, store))
    assert run.violations == []
    assert run.second.report.statistics["get ok"] > 0


@pytest.mark.parametrize(
    ("store", "seed"),
    [
        ("sqlite", 1),
        *(pytest.param("sqlite", seed, marks=pytest.mark.long) for seed in (2, 4, 8)),
    ],
)
def test_a_collection_of_a_lost_store_deletes_nothing_that_is_rebuilt(
    store: str, seed: int
) -> None:
    run = loss_run(loss_plan(seed, store, Mode.COLLECT))
    assert run.violations == []
    assert run.first.report.statistics["collection: failed: PRECONDITION_FAILED"] > 0


async def _no_look(self: Drain, repository: Repository | None, ended_at: float) -> None:
    del self, repository, ended_at


def test_deletions_without_a_look_at_the_epoch_are_noticed() -> None:
    with mock.patch.object(Drain, "before_deletion", _no_look):
        assert loss_run(loss_plan(1, "sqlite", Mode.COLLECT)).violations


async def _nothing(self: EpochReader) -> AsyncIterator[pa.Table]:
    tables: tuple[pa.Table, ...] = ()
    for table in tables:
        yield table


def _notices(text: str, seed: int = 0) -> bool:
    return any(text in problem for problem in loss_run(loss_plan(seed, "sqlite")).problems)


def test_a_rebuild_of_the_base_alone_is_noticed() -> None:
    with mock.patch.object(EpochReader, "passes", _nothing):
        assert _notices("is not what its files say")


async def _no_outboxes(self: _Work) -> None:
    del self


def test_a_rebuild_without_the_reflogs_of_outboxes_is_noticed() -> None:
    with mock.patch.object(_Work, "_write_outboxes", _no_outboxes):
        assert _notices("is not what its files say")


async def _forgetful(self: _Work, name: Any, branch: Branch, rows: Any) -> Branch:
    token = self.tools.new_token(branch.staging)
    return replace(branch, staging=token, sealed=(), compacted_metarange_id=None)


def test_a_rebuild_without_uncommitted_changes_is_noticed() -> None:
    with mock.patch.object(_Work, "_folded", _forgetful):
        assert _notices("is not what its files say", seed=1)
