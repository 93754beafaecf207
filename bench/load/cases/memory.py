"""Flat memory: slow uploads in flight, and mixed load for ten minutes without growth or leak.

The memory of a 1M-entry commit is a column of the case `commit`.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from dataclasses import dataclass, replace

from bench.load.cases.objects import BODY, REPOSITORY, fill, make_repository
from bench.load.client import Load, Measured
from bench.load.node import Form, Node, running
from bench.load.seeding import connected
from bench.load.signing import Request
from bench.load.sizes import KIB
from bench.load.slow_clients import slow_clients
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, pooled, trouble

from tarn.core.errors import Reason, TarnError

__all__ = ["CASES"]

_UPLOADS = 64
_UPLOAD_SECONDS = 30.0
_PIECE = 256 * KIB
_EVERY_S = 0.5
_HEAD_ONLY = "UNSIGNED-PAYLOAD"
_GIB_LENGTH = b"content-length: 1073741824\r\n"

_MIXED_SECONDS = 600.0
_SLICE_SECONDS = 5.0
_COMMIT_EVERY = 6
_CONNECTIONS = 16
_KEYS = 200
_OPERATIONS_PER_SECOND = 4000
_FILES_MORE_MAX = 8


def _slow_uploads(trial: Trial) -> None:
    count = trial.count(_UPLOADS, 8)
    with running(trial.within("node"), Form("os")) as node:
        make_repository(node)
        heads = [_endless(node, number) for number in range(count)]
        node.processes.forget_peak()
        before = node.processes.rss_mib()
        cpu_s = node.processes.cpu_s()
        with slow_clients(node.address, heads, bytes(_PIECE), _EVERY_S) as slow:
            time.sleep(max(2.0, _UPLOAD_SECONDS * trial.scale))
            lost, sent = slow.lost, slow.sent
        cpu_s = node.processes.cpu_s() - cpu_s
        trial.emit(
            Row(
                trial.case,
                "64 slow uploads of 1 GiB in flight",
                form=str(node.form),
                cpu_us=cpu_s * 1e6 / max(1, sent // _PIECE),
                rss_mib=node.processes.peak_rss_mib(),
                goal=Goal(rss_mib_max=300),
                note=f"{before:.0f} MiB before; {sent >> 20} MiB sent, CPU per {_PIECE >> 10} KiB"
                + (f"; {lost} uploads were cut off" if lost else ""),
                failed=bool(lost) or not sent,
            )
        )


def _endless(node: Node, number: int) -> Request:
    """Returns the head of a PUT of 1 GiB whose body is never complete."""
    request = node.signer.request(
        "PUT", f"/{REPOSITORY}/main/slow/{number}", body_sha256=_HEAD_ONLY
    )
    return replace(request, head=request.head.replace(b"content-length: 0\r\n", _GIB_LENGTH))


@dataclass(frozen=True, slots=True)
class _Sample:
    """Memory of a node's largest process, with and without mapped files, and its open files, at one moment."""

    rss_mib: float
    anonymous_mib: float
    files: int


def _mixed(trial: Trial) -> None:
    lasts = max(8.0, _MIXED_SECONDS * trial.scale)
    piece = min(_SLICE_SECONDS, lasts / 8)
    with running(trial.within("node"), Form("os")) as node:
        make_repository(node)
        fill(node, "read/", _KEYS)
        rng = random.Random(1)
        samples, runs = [], []
        fresh = itertools.count()
        cpu_s, ends = node.processes.cpu_s(), time.monotonic() + lasts
        while time.monotonic() < ends:
            requests = _mix(node, rng, fresh, int(_OPERATIONS_PER_SECOND * piece))
            runs.append(Load(node.address, requests, _CONNECTIONS, piece).run())
            if len(runs) % _COMMIT_EVERY == 0:
                asyncio.run(_commit(node))
            of = node.processes
            samples.append(_Sample(of.rss_mib(), of.anonymous_mib(), of.open_files()))
        _report(trial, node, samples, pooled(runs), node.processes.cpu_s() - cpu_s)


def _mix(node: Node, rng: random.Random, fresh: itertools.count[int], count: int) -> list[Request]:
    """Returns reads and writes of small objects, listings, copies and deletes."""
    sign, requests = node.signer.request, []
    root = f"/{REPOSITORY}/main"
    for _ in range(count):
        read = f"{root}/read/{rng.randrange(_KEYS)}"
        match rng.randrange(20):
            case 0:
                query = {"list-type": "2", "max-keys": "100", "prefix": "main/"}
                requests.append(sign("GET", f"/{REPOSITORY}", query))
            case 1:
                source = {"x-amz-copy-source": read}
                requests.append(sign("PUT", f"{root}/copy/{next(fresh)}", headers=source))
            case 2 | 3:
                requests.append(sign("DELETE", f"{root}/put/{rng.randrange(1000)}"))
            case number if number < 10:
                requests.append(sign("PUT", f"{root}/put/{next(fresh) % 100_000}", body=BODY))
            case number:
                requests.append(sign("HEAD" if number % 2 else "GET", read))
    return requests


async def _commit(node: Node) -> None:
    async with connected(node) as connection:
        try:
            await connection.graveler.create_commit(
                connection.call(), REPOSITORY, "main", "mixed load"
            )
        except TarnError as error:
            if error.reason is not Reason.NOTHING_TO_COMMIT:
                raise


def _report(
    trial: Trial, node: Node, samples: list[_Sample], whole: Measured, cpu_s: float
) -> None:
    """Compares the last quarter with the second one; the first one is the warm-up."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    sizes = [statistics.median(s.anonymous_mib for s in part) for part in (early, late)]
    files = [statistics.median(s.files for s in part) for part in (early, late)]
    # A trial ends before the node is warm: files that it opens for the first time are not a leak.
    leaks = trial.scale >= 1 and files[1] > files[0] + _FILES_MORE_MAX
    texts = (
        f"{sizes[0]:.0f} MiB of its own in the second quarter, {sizes[1]:.0f} in the last one; "
        f"{files[0]:.0f} and {files[1]:.0f} open files" + (": a leak" if leaks else ""),
        trouble(whole),
    )
    trial.emit(
        Row(
            trial.case,
            "ten minutes of mixed load, 16 connections, commits",
            form=str(node.form),
            per_second=whole.per_second,
            p50_ms=whole.quantile_ms(0.5),
            p99_ms=whole.quantile_ms(0.99),
            ratio=sizes[1] / max(1e-9, sizes[0]),
            yardstick="memory in the second quarter",
            cpu_us=cpu_s * 1e6 / max(1, whole.count),
            rss_mib=max(sample.rss_mib for sample in samples),
            goal=Goal(ratio_max=1.05),
            note="; ".join(filter(None, texts)),
            failed=leaks or not whole.count or bool(whole.failures),
        )
    )


CASES = (
    Case("slow-uploads", _slow_uploads),
    Case("mixed", _mixed, limit_s=1200),
)
