"""A node that requires a password and certificates, and a role with only the permissions that Tarn needs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra_proxies import kv_url
from cassandra_tls import Identity, identity_of, secured
from running_tarn import running_tarn
from tests.support.faults.tcp_proxy import TcpProxy
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.config import Config, SecretChanges, load
from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra import CassandraLimits, CassandraSettings, CassandraTls
from tarn.kv.cassandra.cluster.connection import _ssl_context
from tarn.kv.cassandra.login_change import LoginChange
from tarn.kv.cassandra.store import CassandraKv
from tarn.kv.opening import open_store as open_metadata
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.testing.contract.cassandra_store import open_store

pytestmark = [pytest.mark.cassandra, pytest.mark.slow]

KEYSPACE = "guarded"
PASSWORD = "correct horse"
LIMITS = CassandraLimits(open_seconds=0.0)
"""A single attempt: a wrong setting does not become right by waiting."""
GRANTS = (
    f"CREATE ROLE tarn WITH PASSWORD = '{PASSWORD}' AND LOGIN = true",
    f"CREATE KEYSPACE {KEYSPACE}"
    " WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}",
    f"GRANT CREATE ON KEYSPACE {KEYSPACE} TO tarn",
    f"GRANT SELECT ON KEYSPACE {KEYSPACE} TO tarn",
    f"GRANT MODIFY ON KEYSPACE {KEYSPACE} TO tarn",
)


@dataclass(frozen=True, slots=True)
class Guarded:
    """A node, its identity, the identity of its client, and an unknown identity."""

    nodes: CassandraNodes
    node: Identity
    client: Identity
    stranger: Identity

    @property
    def settings(self) -> CassandraSettings:
        return CassandraSettings(
            contact_points=self.nodes.contact_points,
            local_datacenter=self.nodes.LOCAL_DATACENTER,
            keyspace=KEYSPACE,
            username="tarn",
            password=PASSWORD,
            tls=CassandraTls(self.node.cert, self.client.cert, self.client.key),
        )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("secured")
    node, client, stranger = (identity_of(name, folder) for name in ("node", "client", "stranger"))
    nodes = CassandraNodes(folder, settings=secured(node, client, folder))
    with nodes:
        made = Guarded(nodes, node, client, stranger)
        administer(made)
        yield made
    nodes.remove_data()


def administer(guarded: Guarded, statements: tuple[str, ...] = GRANTS) -> list[tuple[str]]:
    """Executes statements as the administrator; returns the rows of the last one.

    By default: the grants that docs/operate/cassandra.md requires.
    """
    assert guarded.settings.tls is not None
    host, _, port = guarded.nodes.contact_points[0].rpartition(":")
    deadline = time.monotonic() + 60
    while True:
        cluster = Cluster(
            [host],
            port=int(port),
            protocol_version=5,
            ssl_context=_ssl_context(guarded.settings.tls),
            auth_provider=PlainTextAuthProvider("cassandra", "cassandra"),
        )
        try:
            session = cluster.connect()
            rows: list[tuple[str]] = []
            for cql in statements:
                rows = [tuple(row) for row in session.execute(cql, timeout=30)]
        except NoHostAvailable:
            # The node creates its first role shortly after it serves.
            assert time.monotonic() < deadline, "the node's first role cannot log in"
            time.sleep(0.2)
        else:
            return rows
        finally:
            cluster.shutdown()


def test_tarn_up_works_with_a_password_and_certificates(guarded: Guarded, tmp_path: Path) -> None:
    tls = guarded.settings.tls
    assert tls is not None
    config = tmp_path / "tarn.yaml"
    config.write_text(
        f"""
metadata:
  db:
    cassandra:
      username: tarn
      password: {PASSWORD}
      tls: {{enabled: true, ca: {tls.ca}, cert: {tls.cert}, key: {tls.key}}}
"""
    )
    url = kv_url(guarded.nodes, KEYSPACE)
    with running_tarn(tmp_path, "single", "--config", str(config), "--kv", url) as tarn:
        repository = tarn.new_repository()
        tarn.ok("fs", "upload", "-", f"{repository}/main/a", stdin=b"hello")
        tarn.ok("commit", f"{repository}/main", "-m", "first")
        assert tarn.ok("fs", "cat", f"{repository}/main/a").out == "hello"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("password", "credentials|incorrect"),
        ("no user", "requires authentication"),
        ("plain text", "reset|closed"),
        ("another authority", "CERTIFICATE_VERIFY_FAILED"),
        ("no certificate", "certificate required|EOF"),
        ("a stranger's certificate", "alert|EOF"),
    ],
)
async def test_a_wrong_setting_is_reported(guarded: Guarded, wrong: str, told: str) -> None:
    good = guarded.settings
    ca, stranger = guarded.node.cert, guarded.stranger
    settings = {
        "password": replace(good, password="wrong"),
        "no user": replace(good, username=None, password=None),
        "plain text": replace(good, tls=None),
        "another authority": replace(
            good, tls=CassandraTls(stranger.cert, guarded.client.cert, guarded.client.key)
        ),
        "no certificate": replace(good, tls=CassandraTls(ca)),
        "a stranger's certificate": replace(
            good, tls=CassandraTls(ca, stranger.cert, stranger.key)
        ),
    }[wrong]
    with pytest.raises(TarnError, match=told) as caught:
        await open_store(settings, LIMITS)
    assert PASSWORD not in str(caught.value)


def login(username: str | None, password: str | None) -> Config:
    given = {"USERNAME": username, "PASSWORD": password}
    prefix = "TARN_METADATA_DB_CASSANDRA_"
    return load(None, {"HOME": "/", **{prefix + key: text for key, text in given.items() if text}})


async def test_another_login_is_used_for_new_connections_and_a_wrong_one_is_not(
    guarded: Guarded,
) -> None:
    others = tuple(each.replace("tarn", "tarn_b").replace(PASSWORD, "second") for each in GRANTS)
    administer(guarded, tuple(each for each in others if "KEYSPACE guarded WITH" not in each))
    store = await open_store(guarded.settings, LIMITS)
    change = LoginChange(store, login("tarn", PASSWORD))

    def roles_of_new_connection() -> set[str]:
        """The roles that have a connection only since this one was made."""
        query = ("SELECT username FROM system_views.clients",)
        (host,) = store._cluster.metadata.all_hosts()
        before = Counter(administer(guarded, query))
        connection = store._cluster.connection_factory(host.endpoint)
        try:
            found = Counter(administer(guarded, query)) - before
            return {name for (name,) in found} - {"cassandra"}
        finally:
            connection.close()

    try:
        with pytest.raises(TarnError, match="refuses the new login of role tarn_b") as wrong:
            await change.use(login("tarn_b", "typo"))
        assert wrong.value.kind is Kind.UNAUTHENTICATED
        assert "typo" not in wrong.value.message
        with pytest.raises(TarnError, match="were removed"):
            await change.use(login(None, None))
        assert await asyncio.to_thread(roles_of_new_connection) == {"tarn"}
        await change.use(login("tarn_b", "second"))
        assert await asyncio.to_thread(roles_of_new_connection) == {"tarn_b"}
    finally:
        await store.close()


async def test_replaced_certificates_are_used_for_new_connections_and_wrong_ones_are_not(
    guarded: Guarded, tmp_path: Path
) -> None:
    """The store is opened with the node's certificate; files of others are refused, and a bundle of both is taken."""
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}

    def put(ca: str, own: Identity) -> None:
        texts = {"ca": ca, "cert": own.cert.read_text(), "key": own.key.read_text()}
        for name, text in texts.items():
            files[name].write_text(text)

    node, stranger = guarded.node.cert.read_text(), guarded.stranger.cert.read_text()
    put(node, guarded.client)
    prefix = "TARN_METADATA_DB_CASSANDRA_"
    config = load(
        None,
        {
            "HOME": "/",
            "TARN_METADATA_DB_TYPE": "cassandra",
            f"{prefix}CONTACT_POINTS": ",".join(guarded.nodes.contact_points),
            f"{prefix}LOCAL_DATACENTER": guarded.nodes.LOCAL_DATACENTER,
            f"{prefix}KEYSPACE": KEYSPACE,
            f"{prefix}USERNAME": "tarn",
            f"{prefix}PASSWORD": PASSWORD,
            f"{prefix}TLS_ENABLED": "true",
            **{f"{prefix}TLS_{name.upper()}": str(path) for name, path in files.items()},
        },
    )
    clock, changes = SystemClock(), SecretChanges()
    store = await open_metadata(config, clock, SystemIds(clock), secrets=changes)
    assert isinstance(store, CassandraKv)
    cluster = store._cluster
    first = cluster.ssl_context

    async def reload() -> None:
        for use in changes.users:
            await use(config)

    try:
        await reload()
        assert cluster.ssl_context is first, "nothing has changed"
        for ca, own in ((stranger, guarded.client), (node, guarded.stranger)):
            put(ca, own)
            with pytest.raises(TarnError, match="new certificates") as refused:
                await reload()
            assert refused.value.kind is Kind.UNAVAILABLE
        put(node, guarded.client)
        files["key"].write_text("half of a key")
        with pytest.raises(TarnError, match="TLS files cannot be used"):
            await reload()
        assert cluster.ssl_context is first
        put(stranger + node, guarded.client)
        await reload()
        assert cluster.ssl_context.cert_store_stats()["x509"] == 2
        (host,) = cluster.metadata.all_hosts()
        connection = await asyncio.to_thread(cluster.connection_factory, host.endpoint)
        assert connection.ssl_context is cluster.ssl_context
        await asyncio.to_thread(connection.close)
    finally:
        await store.close()


async def test_a_certificate_for_another_address_is_refused(guarded: Guarded) -> None:
    """A certificate of the authority is not enough: it must name the node's address."""
    port = guarded.nodes.native_port
    async with TcpProxy("127.0.0.1", port, listen=("127.0.0.9", 0)) as proxy:
        settings = replace(guarded.settings, contact_points=(f"127.0.0.9:{proxy.port}",))
        with pytest.raises(TarnError, match=r"CERTIFICATE_VERIFY_FAILED.*127\.0\.0\.9"):
            await open_store(settings, LIMITS)
