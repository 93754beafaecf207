"""Compactions with the client library, over a real server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from served_service import served_service

from tarn.client import Client, CompactionOutcome
from tarn.client.errors import BranchNotFoundError, InvalidArgumentError, RepositoryNotFoundError


async def test_a_branch_is_measured_and_compacted(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        commit = await tarn.get_commit("lake", "main")
        clean = await tarn.get_staging_statistics("lake", "main")
        assert clean.commit_id == commit.commit_id
        assert (clean.row_count, clean.oldest_write_time, clean.compacted_metarange_id) == (
            0,
            None,
            None,
        )
        nothing = await tarn.compact_branch("lake", "main")
        assert nothing.outcome is CompactionOutcome.NOTHING_TO_DO
        assert (nothing.compacted_metarange_id, nothing.running_since) == (None, None)

        for number in range(3):
            await served.service.put(f"k{number}", 1)
        await tarn.delete_object("lake", "main", "k0")
        staged = await tarn.get_staging_statistics("lake", "main")
        assert (staged.row_count, staged.tombstone_count, staged.is_truncated) == (3, 1, False)
        assert staged.size_bytes > 0
        assert staged.oldest_write_time is not None
        few = await tarn.get_staging_statistics("lake", "main", rows_max=2)
        assert (few.row_count, few.is_truncated) == (2, True)

        done = await tarn.compact_branch("lake", "main")
        assert done.outcome is CompactionOutcome.COMPACTED
        assert (done.rows_read, done.tombstones_removed, done.tokens_taken) == (3, 1, 1)
        assert isinstance(done.duration, timedelta)
        after = await tarn.get_staging_statistics("lake", "main")
        assert (after.row_count, after.compacted_row_count) == (0, 2)
        assert after.compacted_metarange_id == done.compacted_metarange_id is not None
        assert after.last_compaction_time is not None
        assert after.compaction_start_time is None
        assert [each.path async for each in tarn.list_objects("lake", "main")] == ["k1", "k2"]
        assert (await tarn.create_commit("lake", "main", "load")).added_count == 2

        with Client(served.address, **served.options()) as blocking:
            again = await asyncio.to_thread(blocking.compact_branch, "lake", "main", force=True)
            assert again.outcome is CompactionOutcome.NOTHING_TO_DO
            counted = await asyncio.to_thread(blocking.get_staging_statistics, "lake", "main")
            assert counted.compacted_metarange_id is None
            await asyncio.to_thread(blocking.close)


async def test_errors_have_the_classes_of_their_reasons(tmp_path: Path) -> None:
    async with served_service(tmp_path) as served, served.client() as tarn:
        with pytest.raises(BranchNotFoundError):
            await tarn.compact_branch("lake", "nope")
        with pytest.raises(RepositoryNotFoundError):
            await tarn.get_staging_statistics("nope", "main")
        with pytest.raises(InvalidArgumentError):
            await tarn.compact_branch("lake", "no/such*name")


def test_an_outcome_of_a_newer_server_has_a_value() -> None:
    assert CompactionOutcome(99) is CompactionOutcome.OTHER
