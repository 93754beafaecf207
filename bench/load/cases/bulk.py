"""Large objects: 64 MiB PUT and GET, ranged GETs of 1 GiB, multipart."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from bench.load.cases.objects import REPOSITORY, make_repository
from bench.load.client import Load, exchange
from bench.load.node import Form, Node, bulk_loop, running
from bench.load.processes import Processes
from bench.load.signing import Request
from bench.load.sizes import BULK_BYTES, GIB, MIB
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, Yardstick, compare, trouble

__all__ = ["CASES"]

_PUTS = {1: 4, 4: 8}
"""Requests of a round, by connections: what is written stays on the disk until the case is over."""
_PARTS = 8
_PART_CONNECTIONS = 4
_RANGES = 500
_RANGE_CONNECTIONS = 16
_SECONDS_MAX = 120.0


@dataclass(slots=True)
class _Body:
    """The body of many requests, hashed once."""

    data: bytes
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        self.sha256 = hashlib.sha256(self.data).hexdigest()

    def put(self, node: Node, key: str, query: dict[str, str] | None = None) -> Request:
        """Returns a PUT of the body to a key of main."""
        path = f"/{REPOSITORY}/main/{key}"
        return node.signer.request("PUT", path, query, self.data, body_sha256=self.sha256)


@contextmanager
def _at_work(
    trial: Trial, form: Form, size: int
) -> Iterator[tuple[Node, tuple[str, int], Processes]]:
    """Yields a node with a repository, and the yardstick of large objects."""
    folder = trial.within(form.durability)
    with (
        running(folder, form) as node,
        bulk_loop(form, folder / "loop", size) as (address, processes),
    ):
        make_repository(node)
        yield node, address, processes


def _large(trial: Trial) -> None:
    size = trial.count(BULK_BYTES, MIB)
    body = _Body(os.urandom(size))
    for form in (Form("os"), Form("fsync")):
        with _at_work(trial, form, size) as (node, address, processes):
            fresh = itertools.count()

            def puts(
                count: int, number: int, node: Node = node, fresh: Iterator[int] = fresh
            ) -> Sequence[Request]:
                wanted = count if number >= 0 else 1
                return [body.put(node, f"large/{next(fresh)}") for _ in range(wanted)]

            for connections, count in _PUTS.items():
                writes = Yardstick("hash and write", address, processes)
                row = _row(trial, "PUT", connections)
                compare(
                    trial,
                    node,
                    writes,
                    row,
                    partial(puts, count),
                    connections,
                    seconds=_SECONDS_MAX,
                )
            if form.durability == "os":
                _get_large(trial, node, Yardstick("sendfile", address, processes), body.data)


def _get_large(trial: Trial, node: Node, yardstick: Yardstick, body: bytes) -> None:
    get = node.signer.request("GET", f"/{REPOSITORY}/main/large/0")
    if exchange(node.address, get) != body:
        raise RuntimeError("a large object is not what was put")
    for connections in _PUTS:
        row = _row(trial, "GET", connections)
        compare(trial, node, yardstick, row, lambda _round: [get], connections, repeat=True)


def _row(trial: Trial, operation: str, connections: int) -> Row:
    plural = "s" if connections > 1 else ""
    goal = Goal(ratio_min=0.9) if connections == 1 else Goal()
    return Row(trial.case, f"{operation} 64 MiB, {connections} connection{plural}", goal=goal)


def _ranges(trial: Trial) -> None:
    part = _Body(os.urandom(trial.count(BULK_BYTES, 5 * MIB)))
    count = GIB // BULK_BYTES
    total = count * len(part.data)
    with _at_work(trial, Form("os"), BULK_BYTES) as (node, address, processes):
        _multipart(node, "huge", part, count)
        rng = random.Random(1)
        requests, start = [], 0
        for _ in range(_RANGES):
            start = rng.randrange(total - MIB)
            headers = {"range": f"bytes={start}-{start + MIB - 1}"}
            requests.append(node.signer.request("GET", f"/{REPOSITORY}/main/huge", headers=headers))
        got = exchange(node.address, requests[-1])
        if got != (part.data * 2)[start % len(part.data) :][:MIB]:
            raise RuntimeError("a range is not what was put")
        compare(
            trial,
            node,
            Yardstick("sendfile", address, processes),
            Row(trial.case, "GET of 1 MiB ranges out of 1 GiB, 16 connections"),
            lambda _round: requests,
            _RANGE_CONNECTIONS,
            repeat=True,
        )


def _multipart(node: Node, key: str, part: _Body, count: int) -> None:
    """Does one upload in parts of the same bytes."""
    path = f"/{REPOSITORY}/main/{key}"
    made = exchange(node.address, node.signer.request("POST", path, {"uploads": ""})).decode()
    found = re.search("<UploadId>(.*)</UploadId>", made)
    if found is None:
        raise RuntimeError(f"no upload was made: {made[:300]}")
    upload = found.group(1)
    numbers = range(1, count + 1)
    parts = [part.put(node, key, {"partNumber": str(n), "uploadId": upload}) for n in numbers]
    done = Load(node.address, parts, _PART_CONNECTIONS, _SECONDS_MAX).run()
    if done.failures or done.count != count:
        raise RuntimeError(f"uploading parts: {trouble(done)}")
    etag = hashlib.md5(part.data, usedforsecurity=False).hexdigest()
    listed = "".join(
        f"<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>" for n in numbers
    )
    body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
    complete = node.signer.request("POST", path, {"uploadId": upload}, body)
    answer = exchange(node.address, complete)
    if f"-{count}".encode() not in answer:
        raise RuntimeError(f"the upload was not completed: {answer[:300]!r}")


def _uploads(trial: Trial) -> None:
    part = _Body(os.urandom(trial.count(BULK_BYTES // _PARTS, 5 * MIB)))
    with _at_work(trial, Form("os"), MIB) as (node, address, _):
        plain = [part.put(node, "yardstick")] * _PARTS

        def loop() -> None:
            Load(address, plain, _PART_CONNECTIONS, _SECONDS_MAX).run()

        _multipart(node, "warm", part, _PARTS)
        node.processes.forget_peak()
        cpu_s, times, loops = node.processes.cpu_s(), [], []
        for number in range(trial.rounds):
            loops.append(_seconds(loop))
            times.append(_seconds(partial(_multipart, node, f"parts/{number}", part, _PARTS)))
        cpu_s = node.processes.cpu_s() - cpu_s
        ratios = [before / after for before, after in zip(loops, times, strict=True)]
        row = Row(
            trial.case,
            "multipart upload of 8 parts of 8 MiB, 4 connections",
            form=str(node.form),
            per_second=1 / statistics.median(times),
            p50_ms=statistics.median(times) * 1e3,
            ratio=statistics.median(ratios),
            ratio_low=min(ratios),
            ratio_high=max(ratios),
            yardstick=f"hash and write: {1 / statistics.median(loops):.3g}/s",
            cpu_us=cpu_s * 1e6 / trial.rounds,
            rss_mib=node.processes.peak_rss_mib(),
            rounds=trial.rounds,
        )
        trial.emit(row)


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


CASES = (
    Case("large", _large, limit_s=1200),
    Case("ranges", _ranges),
    Case("multipart", _uploads),
)
