"""Opens the metadata store that a configuration names."""

from __future__ import annotations

import functools

import structlog

from tarn.config import Config, SecretChanges, certificates_of_kv, contents_of
from tarn.config.certificate_change import CertificateChange
from tarn.core.clock import Clock, IdSource
from tarn.kv.agreement import agree
from tarn.kv.embedded import open_embedded
from tarn.kv.embedded.reading import open_embedded_to_read
from tarn.kv.fence import FencedKv, check_level, check_open
from tarn.kv.metered import MeteredKv
from tarn.kv.port import ListingKv, ReadKv, ScanKv
from tarn.kv.upgrading import begin_level
from tarn.telemetry.meters import Meters

__all__ = ["open_kv", "open_kv_to_read", "open_scans", "open_store"]

_log = structlog.get_logger()


async def open_kv(
    config: Config,
    clock: Clock,
    ids: IdSource,
    meters: Meters | None = None,
    secrets: SecretChanges | None = None,
) -> ListingKv:
    """Opens the metadata store for a service; the caller closes it. A new installation gets its feature level.

    Args:
        config: names the store.
        clock: the store's clock.
        ids: the store's source of ids.
        meters: counts the store's operations (`tarn.kv.metered`); None: they are not counted.
        secrets: tells the store of another login; None: it keeps the one of the start.

    Raises:
        TarnError: the store cannot be opened, the installation may not be used on it (`tarn.kv.fence`), or
            other processes use it with different settings (`tarn.kv.agreement`). The text gives the reason.
    """
    store = await open_store(config, clock, ids, secrets=secrets)
    try:
        await check_open(store, config.installation.id)
        await begin_level(store, config.installation.id)
        if config.metadata.db.type == "cassandra":
            # Compare-and-sets are decided among the nodes of one data centre. Two processes with different
            # data centres could therefore both win the same one.
            centre = config.metadata.db.cassandra.local_datacenter
            name = "metadata.db.cassandra.local_datacenter"
            await agree(store, config.installation.id, {name: centre})
    except BaseException:
        await store.close()
        raise
    if config.metadata.db.type != "embedded":
        store = FencedKv(store, config.installation.id, clock)
    return store if meters is None else MeteredKv(store, clock, meters)


async def open_scans(config: Config, clock: Clock, ids: IdSource) -> ScanKv:
    """Opens the metadata store for bulk reads, in a child of a process that has it open for everything else.

    The calling process must not open the embedded store in any other way (`tarn.kv.embedded.scans`).

    Raises:
        TarnError: the store cannot be opened; the text gives the reason.
    """
    if config.metadata.db.type != "embedded":
        return await open_kv(config, clock, ids)
    # Imported only here: no other process needs the driver and its own sqlite library. Loading two sqlite
    # libraries does no harm; opening one file with both does.
    from tarn.kv.embedded.scans import open_embedded_scans

    return await open_embedded_scans(config.metadata.db.embedded.file)


async def open_kv_to_read(config: Config, clock: Clock, ids: IdSource) -> ReadKv:
    """Opens the metadata store of a configuration for reading; the caller closes it.

    Works while other processes write to the store, and while none runs. The connections to an embedded store
    are read-only in sqlite itself. Cassandra has no such mode: there only the type prevents writes.

    Raises:
        TarnError: the store cannot be opened or does not exist; the text gives the reason.
    """
    if config.metadata.db.type != "embedded":
        return await open_store(config, clock, ids)
    store = await open_embedded_to_read(config.metadata.db.embedded.file)
    try:
        await check_level(store, config.installation.id)
    except BaseException:
        await store.close()
        raise
    return store


async def open_store(
    config: Config,
    clock: Clock,
    ids: IdSource,
    *,
    alone: bool = False,
    secrets: SecretChanges | None = None,
) -> ListingKv:
    """Opens the metadata store for tools, whatever its fence says.

    Args:
        config: names the store.
        clock: the store's clock.
        ids: the store's source of ids.
        alone: no other process may have the store open. Ignored for a store on several machines, where
            this cannot be checked.
        secrets: as for `open_kv`.

    Raises:
        TarnError: the store cannot be opened, or this release does not support its feature level.
    """
    store: ListingKv
    match config.metadata.db.type:
        case "embedded":
            file = config.metadata.db.embedded.file
            store = await open_embedded(file, durability=config.durability, alone=alone)
        case "cassandra":
            store = await _open_cassandra(config, clock, ids, secrets)
    try:
        await check_level(store, config.installation.id)
    except BaseException:
        await store.close()
        raise
    return store


async def _open_cassandra(
    config: Config, clock: Clock, ids: IdSource, secrets: SecretChanges | None
) -> ListingKv:
    # Imported only here: the driver takes 0.3 s to import, and other processes do not need it installed.
    from tarn.kv.cassandra import CassandraLimits, CassandraSettings, CassandraTls, open_cassandra
    from tarn.kv.cassandra.login_change import LoginChange

    section = config.metadata.db.cassandra
    tls = CassandraTls(section.tls.ca, section.tls.cert, section.tls.key)
    settings = CassandraSettings(
        contact_points=section.contact_points,
        local_datacenter=section.local_datacenter,
        keyspace=section.keyspace,
        replication_factor=section.replication_factor,
        username=section.username,
        password=section.password.reveal() if section.password is not None else None,
        tls=tls if section.tls.enabled else None,
    )
    limits = CassandraLimits(request_seconds=section.request_timeout_ms / 1000)
    files = certificates_of_kv(config)
    contents = contents_of(files)
    store = await open_cassandra(settings, clock=clock, ids=ids, limits=limits)
    for advice in store.advice:
        _log.warning("cassandra could be set up better", advice=advice)
    if secrets is not None:
        if settings.tls is not None:  # first: a new login needs a connection
            reload = functools.partial(store.use_certificates, settings.tls)
            secrets.subscribe(CertificateChange("cassandra", files, contents, reload).use)
        secrets.subscribe(LoginChange(store, config).use)
    return store
