"""Certificates that are replaced while services talk: no call fails, and new connections use the new ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from certificates import Authority, MountedSecret
from tests.support.servers.toy_service import (
    SERVICE,
    Served,
    call_in,
    lookup,
    stage,
    until,
)

from tarn.core.errors import Kind, TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.replicas import Replicas
from tarn.rpc.client.transport import Transport
from tarn.rpc.process import tls as tls_module
from tarn.rpc.process.system import SystemClock
from tarn.rpc.process.tls import ChannelTls, TlsFiles, server_credentials
from tarn.rpc.server.grpc_server import ServerConfig
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
grpc_loop = pytest.mark.asyncio(loop_scope="session")


class Installation:
    """A server and a client with mounted Secrets, and an authority that replaces the first one."""

    def __init__(self, folder: Path) -> None:
        self.old = Authority(folder / "old", "old authority")
        self.new = Authority(folder / "new", "new authority")
        self.of_server = MountedSecret(folder / "server")
        self.of_client = MountedSecret(folder / "client")
        self.put(self.old, self.old)
        self.served = Served(ServerConfig("127.0.0.1:0"), self.of_server.files)

    def put(self, issuer: Authority, *trusted: Authority) -> None:
        """Gives both sides certificates of an authority, and the authorities that they trust."""
        self.of_server.put(issuer.issue("service"), *trusted)
        self.of_client.put(issuer.issue("caller"), *trusted)

    def transport(self, files: TlsFiles | None = None) -> GrpcTransport:
        """Returns a client; of the mounted Secret, if no other files are given."""
        return GrpcTransport(
            [self.served.address],
            tls=ChannelTls(files or self.of_client.files),
            clock=SystemClock(),
            rng=random.Random(3),
            renew_s=0.05,
        )

    async def kind_of_answer(self, files: TlsFiles) -> Kind | None:
        """Returns the kind of error that a new client gets; None for an answer."""
        transport = self.transport(files)
        try:
            await listed(transport, 0.7)
        except TarnError as error:
            return error.kind
        finally:
            await transport.close()
        return None


@asynccontextmanager
async def installed(folder: Path) -> AsyncIterator[Installation]:
    made = Installation(folder)
    await made.served.start()
    try:
        yield made
    finally:
        await made.served.kill()


async def listed(transport: Transport, seconds: float = 10.0, prefix: str = "") -> None:
    request = pb.ListEntriesRequest(prefix=prefix)
    await transport.unary(SERVICE, "ListEntries", request, call_in(seconds))


class CallLoop:
    """Calls of all kinds, one after the other, until it is stopped; counts them."""

    def __init__(self, transport: GrpcTransport) -> None:
        self._transport = transport
        self._is_stopped = False
        self.count = 0

    def stop(self) -> None:
        self._is_stopped = True

    async def run(self) -> None:
        """Raises the first failure."""
        while not self._is_stopped:
            await listed(self._transport)
            await self._transport.operate(SERVICE, *lookup("a"), call_in())
            await self._transport.operate(SERVICE, *stage("a"), call_in())
            self.count += 1

    async def goes_on(self) -> None:
        """Returns after further calls."""
        wanted = self.count + 20
        await until(lambda: self.count >= wanted)


@grpc_loop
async def test_an_authority_is_replaced_under_load(tmp_path: Path) -> None:
    """In three steps: both are trusted, then the new one issues, then the old one is no longer trusted."""
    async with installed(tmp_path) as made:
        transport, toy = made.transport(), made.served.toy
        load = CallLoop(transport)
        steps = (
            (made.old, made.old, made.new),
            (made.new, made.old, made.new),
            (made.new, made.new),
        )
        async with asyncio.TaskGroup() as group:
            running = group.create_task(load.run())
            await load.goes_on()
            for number, step in enumerate(steps):
                # These begin on a connection with old certificates, and end after the renewal.
                held = [
                    group.create_task(listed(transport, 30, f"wait-u{number}")),
                    group.create_task(
                        transport.operate(SERVICE, *stage(f"wait-s{number}"), call_in(30))
                    ),
                ]
                await until(
                    lambda n=number: {f"wait-u{n}", f"wait-s{n}"} <= set(toy.begun)  # type: ignore[misc]
                )
                (before,) = transport._peers.values()
                made.put(*step)
                await until(lambda peer=before: peer not in transport._peers.values())  # type: ignore[misc]
                await load.goes_on()
                assert not any(each.done() for each in held)
                toy.release.set()
                for each in held:
                    await each
                toy.release.clear()
            load.stop()
            await running
        assert await made.kind_of_answer(made.new.issue("newcomer")) is None
        forged = made.old.issue("latecomer")
        stale = TlsFiles(forged.certificate, forged.key, made.new.path)
        assert await made.kind_of_answer(stale) is Kind.UNAVAILABLE
        # The running client's next connection has its new certificate, too.
        await made.served.kill()
        await made.served.start()
        await listed(transport)
        await transport.close()


@grpc_loop
async def test_files_that_do_not_fit_are_not_used(tmp_path: Path) -> None:
    async with installed(tmp_path) as made:
        transport = made.transport()
        await listed(transport)
        good, other = made.old.issue("service"), made.old.issue("other")
        assert good.certificate is not None
        assert other.key is not None
        wrong = good.certificate.read_bytes(), other.key.read_bytes()
        for broken in (wrong, (b"", b""), (b"no certificate", b"no key")):
            made.of_server.put_bytes(*broken, made.old)
            made.of_client.put_bytes(*broken, made.old)
            await asyncio.sleep(0.15)
            await listed(transport)
            assert await made.kind_of_answer(made.old.issue("newcomer")) is None
        (before,) = transport._peers.values()
        made.put(made.old, made.old)
        await until(lambda: before not in transport._peers.values())
        await listed(transport)
        await transport.close()


@grpc_loop
async def test_a_client_keeps_its_connection_if_the_server_does_not_take_its_new_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarn.rpc.client.grpc_transport._CONNECT_SECONDS", 0.3)
    async with installed(tmp_path) as made:
        transport = made.transport()
        await listed(transport)
        (before,) = transport._peers.values()
        made.of_client.put(made.new.issue("caller"), made.old)
        await asyncio.sleep(1)
        await listed(transport)
        assert [*transport._peers.values()] == [before]
        # The server trusts it now: the client tries again by itself.
        made.of_server.put(made.old.issue("service"), made.old, made.new)
        await until(lambda: before not in transport._peers.values())
        await listed(transport)
        await transport.close()


@grpc_loop
async def test_transports_to_each_replica_are_made_anew(tmp_path: Path) -> None:
    async with installed(tmp_path) as made:
        tls = ChannelTls(made.of_client.files)
        replicas = Replicas([made.served.address], tls=tls, clock=SystemClock())
        first = await replicas.transports()
        assert await replicas.transports() == first
        await listed(first[made.served.address])
        made.put(made.new, made.new)
        second = await replicas.transports()
        assert second != first
        await listed(second[made.served.address])
        await replicas.close()


def test_files_that_do_not_fit_prevent_the_start(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    one, two = authority.issue("one"), authority.issue("two")
    files = TlsFiles(one.certificate, two.key, authority.path)
    for use in (ChannelTls, server_credentials):
        with pytest.raises(ValueError, match="not usable for TLS"):
            use(files)


def test_comments_in_any_language_are_allowed(tmp_path: Path) -> None:
    """Bundles of authorities name them in comments."""
    files = Authority(tmp_path / "authority").issue("one")
    assert files.authority is not None
    files.authority.write_bytes(
        "# Autoridade de Certificação\n".encode() + files.authority.read_bytes()
    )
    assert ChannelTls(files).credentials() is not None
    assert server_credentials(files) is not None


def test_files_that_are_being_replaced_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read twice, so a pair that was half old and half new is always noticed."""
    made = Installation(tmp_path)
    read = tls_module._contents

    def replaced_after(files: TlsFiles) -> object:
        found = read(files)
        made.put(made.new, made.new)
        return found

    monkeypatch.setattr(tls_module, "_contents", replaced_after)
    with pytest.raises(ValueError, match="is being replaced"):
        ChannelTls(made.of_client.files)


def test_keys_stay_out_of_messages(tmp_path: Path) -> None:
    files = Authority(tmp_path / "authority").issue("one")
    tls = ChannelTls(files)
    assert files.key is not None
    assert "PRIVATE" not in repr(vars(tls)) + repr(tls._watch.newest())
