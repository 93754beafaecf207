"""Rows of a journal are spread over buckets: each place in one, evenly, and nothing is lost on the way."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from journals import batch_of, model, random_events

from tarn.journal.replay import branch_of, ranks_of
from tarn_spark.journal import rebuild


def spread(table: pa.Table, at: int, *, is_record: bool) -> dict[int, list[bytes]]:
    rows = pa.concat_tables([rebuild._NOTHING, *rebuild._layers(at, table, is_record=is_record)])
    return {
        bucket: [rebuild._packed(part).to_pybytes()] for bucket, part in rebuild._by_bucket(rows, 3)
    }


def batches(bodies: list[bytes]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"rows": pa.array([each], pa.binary())}) for each in bodies]


def test_buckets_have_together_what_the_rules_say() -> None:
    for seed in range(8):
        events = random_events(random.Random(seed))
        table = pa.Table.from_batches([batch_of(events)])
        lost = pa.Table.from_batches([batch_of(random_events(random.Random(seed + 100)))])
        found: list[dict[int, list[bytes]]] = []
        for is_record in (True, False):
            own = spread(table, 1, is_record=is_record)
            for bucket, bodies in spread(lost, 2, is_record=is_record).items():
                own.setdefault(bucket, []).extend(bodies)
            found.append(own)
        records = {
            row["key"]: row["payload"]
            for bodies in found[0].values()
            for batch in rebuild._newest_records([2])(batches(bodies))
            for row in batch.to_pylist()
        }
        ranks: dict[bytes, int] = {}
        for key, payload in records.items():
            if branch := branch_of(key, payload):
                ranks |= ranks_of(key, branch)
        staged: dict[str, dict[str, bytes]] = {}
        for bodies in found[1].values():
            for batch in rebuild._staged_rows(ranks, [2])(batches(bodies)):
                for row in batch.to_pylist():
                    rows = staged.setdefault(row["branch"], {})
                    assert row["path"] not in rows, "a place is in one bucket"
                    rows[row["path"]] = row["payload"]
        assert (records, staged) == model(events)


def test_buckets_are_even_and_do_not_depend_on_the_slice() -> None:
    paths = [
        f"tables/events/date=2026-11-{at % 30:02}/part-{at:08}.parquet" for at in range(70_000)
    ]
    places = pa.array([b"main\0" + path.encode() for path in paths])
    found = rebuild._bucket_of(places, 64)
    counts = np.bincount(found, minlength=64)
    assert counts.max() < 3 * counts.mean()
    assert found[1000:1010].tolist() == rebuild._bucket_of(places[1000:1010], 64).tolist()
