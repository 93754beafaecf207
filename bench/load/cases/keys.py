"""DeleteObjects of 1,000 keys, CopyObject."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
import uvloop
from bench.load.cases.objects import REPOSITORY, at_work, fill
from bench.load.client import exchange
from bench.load.node import Form, Node
from bench.load.seeding import seeder
from bench.load.signing import Request
from bench.load.table import Row
from bench.load.trial import Case, Trial, compare

__all__ = ["CASES"]

_KEYS = 1000
_DELETES = 5
"""Requests of one round: each needs its own 1,000 keys, staged before."""
_COPIES_PER_SECOND = 20_000


def _delete_objects(trial: Trial) -> None:
    with at_work(trial, Form("os")) as (node, yardstick):
        count = trial.count(_KEYS, 10)
        groups = 1 + trial.rounds * _DELETES
        uvloop.run(_stage(trial, node, count * groups))
        requests = [_delete(node, range(n * count, (n + 1) * count)) for n in range(groups)]
        answer = exchange(node.address, requests[0])
        if answer.count(b"<Deleted>") != count:
            raise RuntimeError(f"DeleteObjects of {count} keys answered {answer[:300]!r}")

        def of_round(number: int) -> Sequence[Request]:
            first = 1 + number * _DELETES
            return requests[first : first + _DELETES] if number >= 0 else requests[:1]

        compare(
            trial,
            node,
            yardstick,
            Row(trial.case, "DeleteObjects of 1,000 staged keys, 1 connection"),
            of_round,
            1,
            seconds=60,
        )


async def _stage(trial: Trial, node: Node, count: int) -> None:
    async with seeder(node, trial.within("cache")) as seed:
        repository = await seed.graveler.repositories.get(REPOSITORY)
        await seed.stage(repository, "main", np.arange(count, dtype=np.int64), "delete")


def _delete(node: Node, numbers: range) -> Request:
    keys = (f"main/lake/events/delete/part-{number:09}.parquet" for number in numbers)
    objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    body = f"<Delete>{objects}</Delete>".encode()
    md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    return node.signer.request(
        "POST", f"/{REPOSITORY}", {"delete": ""}, body, headers={"content-md5": md5}
    )


def _copy_object(trial: Trial) -> None:
    with at_work(trial, Form("os")) as (node, yardstick):
        fill(node, "read/", 10)
        fresh = itertools.count()
        for connections in (1, 32):
            count = int(_COPIES_PER_SECOND * trial.seconds / (4 if connections == 1 else 1))

            def of_round(_number: int, count: int = count) -> Sequence[Request]:
                source = {"x-amz-copy-source": f"/{REPOSITORY}/main/read/1"}
                return [
                    node.signer.request(
                        "PUT", f"/{REPOSITORY}/main/copy/{next(fresh)}", headers=source
                    )
                    for _ in range(count)
                ]

            plural = "s" if connections > 1 else ""
            row = Row(trial.case, f"CopyObject of 1 KiB, {connections} connection{plural}")
            compare(trial, node, yardstick, row, of_round, connections)


CASES = (
    Case("delete-objects", _delete_objects),
    Case("copy", _copy_object),
)
