"""Opens a store: connects, creates or migrates the schema, checks the cluster, prepares the statements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from cassandra.cluster import Cluster, NoHostAvailable, Session

from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.checks import check_keyspace, check_name, check_nodes
from tarn.kv.cassandra.cluster.connection import connect
from tarn.kv.cassandra.cluster.outcomes import is_transient, read_error
from tarn.kv.cassandra.cluster.rediscovery import Rediscovery
from tarn.kv.cassandra.cluster.schema import ensure_schema
from tarn.kv.cassandra.cluster.statements import Statements, prepare
from tarn.kv.cassandra.components import Components
from tarn.kv.cassandra.settings import CassandraLimits, CassandraSettings
from tarn.kv.cassandra.store import CassandraKv

__all__ = ["open_cassandra"]

_PAUSE_SECONDS = 1.0

_log = structlog.get_logger()


async def open_cassandra(
    settings: CassandraSettings,
    *,
    clock: Clock,
    ids: IdSource,
    limits: CassandraLimits | None = None,
) -> CassandraKv:
    """Opens the store in a keyspace, or creates it. Several processes may do so concurrently.

    Open a store after a fork, not before it. Each instance belongs to its event loop.

    Args:
        settings: the cluster and the keyspace.
        clock: its wall clock gives plain rows their timestamps; keep it within 100 ms of the true time.
        ids: makes the nonces of operations.
        limits: bounds; None for the defaults.

    Raises:
        TarnError: UNAVAILABLE: no node answered for `limits.open_seconds`. FAILED_PRECONDITION: the cluster
            cannot keep Tarn's guarantees; the text gives the reason. INVALID: a setting is wrong.
    """
    limits = limits or CassandraLimits()
    end = clock.monotonic() + limits.open_seconds
    found: _Opened | None = None
    said = ""
    while found is None:
        try:
            found = await _attempt(settings, clock, ids, limits)
        except TarnError as error:
            if error.kind is not Kind.UNAVAILABLE or clock.monotonic() >= end:
                raise
            if error.message != said:
                said = error.message
                _log.warning("cassandra is not opened yet", error=said)
            await clock.sleep(_PAUSE_SECONDS)
    components = Components.of(found.session, found.statements, clock, ids, limits)
    rediscovery = Rediscovery(found.cluster, settings.contact_points, clock)
    return CassandraKv(found.cluster, components, limits, found.advice, rediscovery)


async def _attempt(
    settings: CassandraSettings, clock: Clock, ids: IdSource, limits: CassandraLimits
) -> _Opened:
    loop = asyncio.get_running_loop()
    opened = loop.run_in_executor(None, _open, settings, clock, ids, limits)
    try:
        return await asyncio.shield(opened)
    except asyncio.CancelledError:
        opened.add_done_callback(_abandon)
        raise


@dataclass(frozen=True, slots=True)
class _Opened:
    cluster: Cluster
    session: Session
    statements: Statements
    advice: list[str]


def _open(
    settings: CassandraSettings, clock: Clock, ids: IdSource, limits: CassandraLimits
) -> _Opened:
    check_name(settings)
    try:
        with _driver_is_silent():
            cluster, session = connect(settings, limits)
        try:
            check_nodes(cluster, settings)
            ensure_schema(cluster, session, settings, ids)
            advice = check_keyspace(session, settings, limits, clock)
            statements = prepare(session, settings.keyspace)
        except BaseException:
            cluster.shutdown()
            raise
    except TarnError:
        raise
    except Exception as error:
        points = ", ".join(settings.contact_points)
        if _is_too_old(error):
            text = f"Cassandra at {points} is too old: Tarn needs 4.1 or later, better 5.0"
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.UNAVAILABLE, text) from error
        text = f"Cassandra at {points} cannot be opened: {read_error(error).message}"
        kind = Kind.UNAVAILABLE if is_transient(error) else Kind.FAILED_PRECONDITION
        raise TarnError(kind, Reason.UNAVAILABLE, text) from error
    return _Opened(cluster, session, statements, advice)


def _is_too_old(error: Exception) -> bool:
    """Whether every node that answered refused our protocol version, which came with Cassandra 4.0."""
    answers = list(error.errors.values()) if isinstance(error, NoHostAvailable) else []
    return bool(answers) and all("protocol_version" in str(answer) for answer in answers)


@contextmanager
def _driver_is_silent() -> Iterator[None]:
    """Silences the driver, which logs each failed connection with a traceback. We log the failure once."""
    logger = logging.getLogger("cassandra.cluster")

    def nothing(_record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(nothing)
    try:
        yield
    finally:
        logger.removeFilter(nothing)


def _abandon(opened: asyncio.Future[_Opened]) -> None:
    """Shuts down a store whose opener was cancelled before it was opened."""
    if not opened.cancelled() and opened.exception() is None:
        opened.get_loop().run_in_executor(None, opened.result().cluster.shutdown)
