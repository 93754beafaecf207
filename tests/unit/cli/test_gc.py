"""What `tarn gc run` and `tarn gc status` show of a collection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tarn.collection.block_names import BlockKind
from tarn.collection.collector import Collector, Replaced
from tarn.collection.quarantine import Manifest, Tally
from tarn.collection.rounds import Round, collect_one
from tarn.collection.sweeping import SweepOptions
from tarn_cli.collecting import shown
from tarn_cli.commands.gc import _status
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

NOTE = "3 commits and 1 tag expired"
OLD, NEW = "a" * 32, "b" * 32
MANIFEST = Manifest(NEW, "lake", 0, 0, {kind.value: Tally() for kind in BlockKind}, ())


class Collected:
    """A collector whose last mark has a note, and can never be swept."""

    def __init__(self, mark_run_id: str) -> None:
        self.clock = SimpleNamespace(now_us=lambda: 1)
        self._mark_run_id = mark_run_id

    async def record(self, _: str) -> pb.Collection:
        return pb.Collection(
            mark_run_id=self._mark_run_id, last_mark=pb.CollectionTotals(note=NOTE)
        )

    async def mark(self, _: str) -> Manifest:
        return MANIFEST

    async def sweep_or_replace(self, _: str, __: SweepOptions) -> Replaced:
        return Replaced(OLD, "its manifest is missing", MANIFEST)


@pytest.mark.parametrize("mark_run_id", ["", OLD])
async def test_a_run_shows_the_note_of_its_mark_and_which_mark_it_replaced(
    mark_run_id: str,
) -> None:
    done = await collect_one(Round(), cast("Collector", Collected(mark_run_id)), "lake")
    row = shown(done)
    assert (row["did"], row["mark"], row["note"]) == ("mark", NEW, NOTE)
    told = (row.get("instead_of"), row.get("because"))
    assert told == ((OLD, "its manifest is missing") if mark_run_id else (None, None))


def test_a_status_shows_the_notes_of_runs_that_have_one() -> None:
    noted, plain = pb.CollectionTotals(note=NOTE), pb.CollectionTotals(run_id=OLD)
    row = _status(pb.Collection(last_mark=noted, last_sweep=plain))
    last_mark, last_sweep = row["last_mark"], row["last_sweep"]
    assert isinstance(last_mark, dict)
    assert isinstance(last_sweep, dict)
    assert last_mark["note"] == NOTE
    assert "note" not in last_sweep
