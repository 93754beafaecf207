"""1,000 idle connections and 200 slow ones: their effect on other connections."""

from __future__ import annotations

import itertools
import resource
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from bench.load.answer import Answer
from bench.load.cases.objects import REPOSITORY, fill, make_repository
from bench.load.client import Load, Measured
from bench.load.node import Form, Node, running
from bench.load.sizes import KIB, MIB
from bench.load.slow_clients import slow_clients
from bench.load.table import Row
from bench.load.trial import Case, Trial, pooled, trouble

__all__ = ["CASES"]

_IDLE = 1000
_SLOW = 200
_KEYS = 100
_CONNECTIONS = 32


@contextmanager
def _idle(trial: Trial, node: Node) -> Iterator[None]:
    """Opens connections that are used once and then kept open."""
    count = trial.count(_IDLE, 20)
    _allow_files(2 * count + 200)
    request = node.signer.request("HEAD", f"/{REPOSITORY}/main/read/0")
    with ExitStack() as stack:
        held = []
        for _ in range(count):
            connection = socket.create_connection(node.address, timeout=30)
            stack.callback(connection.close)
            connection.sendall(request.head)
            answer = Answer(is_head=True)
            while not answer.feed(connection.recv(4096)):
                pass
            held.append(connection)
        yield
        lost = sum(_is_closed(connection) for connection in held)
        if lost:
            raise RuntimeError(f"{lost} of {count} idle connections were closed")


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


@contextmanager
def _slow(trial: Trial, node: Node) -> Iterator[None]:
    """Runs uploads of 1 MiB at 1 KiB per second."""
    count = trial.count(_SLOW, 10)
    heads = [
        replace(
            node.signer.request("PUT", f"/{REPOSITORY}/main/slow/{number}", body=bytes(MIB)),
            body=b"",
        )
        for number in range(count)
    ]
    with slow_clients(node.address, heads, bytes(KIB), 1.0) as slow:
        yield
        if slow.lost:
            raise RuntimeError(f"{slow.lost} of {count} slow uploads were cut off")


def _run(trial: Trial) -> None:
    _allow_files(2 * _IDLE + 200)  # the node inherits it
    with running(trial.within("node"), Form("os")) as node:
        make_repository(node)
        fill(node, "read/", _KEYS)
        for what, beside in (("1,000 idle connections", _idle), ("200 slow uploads", _slow)):
            _measure(trial, node, what, beside)


def _measure(
    trial: Trial,
    node: Node,
    what: str,
    beside: Callable[[Trial, Node], AbstractContextManager[None]],
) -> None:
    """Measures alternately without and with these connections."""
    node.processes.forget_peak()
    resident = node.processes.rss_mib()
    alone, together = [_gets(trial, node)], []
    cpu_s = 0.0
    for _ in range(trial.rounds):
        with beside(trial, node):
            before = node.processes.cpu_s()
            together.append(_gets(trial, node))
            cpu_s += node.processes.cpu_s() - before
        alone.append(_gets(trial, node))
    ratios = [
        2 * run.per_second / max(1e-9, before.per_second + after.per_second)
        for run, (before, after) in zip(together, itertools.pairwise(alone), strict=True)
    ]
    quiet, whole = pooled(alone), pooled(together)
    peak = node.processes.peak_rss_mib()
    texts = (
        f"alone p99 {quiet.quantile_ms(0.99):.3g} ms; "
        f"peak RSS {peak - resident:+.0f} MiB over the start",
        trouble(whole),
    )
    trial.emit(
        Row(
            trial.case,
            f"GET 1 KiB, 32 connections, beside {what}",
            form=str(node.form),
            per_second=statistics.median(run.per_second for run in together),
            p50_ms=whole.quantile_ms(0.5),
            p99_ms=whole.quantile_ms(0.99),
            ratio=statistics.median(ratios),
            ratio_low=min(ratios),
            ratio_high=max(ratios),
            yardstick=f"alone: {statistics.median(r.per_second for r in alone):,.0f}/s",
            cpu_us=cpu_s * 1e6 / max(1, whole.count),
            rss_mib=peak,
            note="; ".join(filter(None, texts)),
            failed=not whole.count or bool(whole.failures),
            rounds=trial.rounds,
        )
    )


def _gets(trial: Trial, node: Node) -> Measured:
    requests = [
        node.signer.request("GET", f"/{REPOSITORY}/main/read/{number}") for number in range(_KEYS)
    ]
    return Load(node.address, requests, _CONNECTIONS, trial.seconds, repeat=True).run()


CASES = (Case("connections", _run),)
