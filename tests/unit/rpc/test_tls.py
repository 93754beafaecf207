"""TLS and mutual TLS between services."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from certificates import Authority
from tests.support.servers.toy_service import SERVICE, Served, Toy, call_in, failure

from tarn.core.errors import Kind
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.client.replicas import Replicas
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.tls import ChannelTls, TlsFiles, server_credentials
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.telemetry.meters import Meters
from tarn.telemetry.tracing import Tracing
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
grpc_loop = pytest.mark.asyncio(loop_scope="session")


async def kind_of_answer(server_files: TlsFiles, client_files: TlsFiles | None) -> Kind | None:
    """Returns the kind of error that a client gets from a server; None for an answer."""
    clock, rng = SystemClock(), random.Random(1)
    server = RpcServer(
        [Toy().endpoint],
        ServerConfig("127.0.0.1:0"),
        clock=clock,
        ids=SystemIds(clock),
        meters=Meters(),
        tracing=Tracing(None, 0, rng),
        credentials=server_credentials(server_files),
    )
    address = await server.start()
    tls = None if client_files is None else ChannelTls(client_files)
    transport = GrpcTransport([address], tls=tls, clock=clock, rng=rng)
    answer = transport.unary(SERVICE, "ListEntries", pb.ListEntriesRequest(), call_in(0.7))
    try:
        if client_files == server_files:
            await answer
            return None
        return (await failure(answer)).kind
    finally:
        await transport.close()
        await server.close()


@grpc_loop
async def test_mutual_tls_lets_known_clients_in(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("service")
    assert await kind_of_answer(files, files) is None


@grpc_loop
async def test_mutual_tls_keeps_others_out(tmp_path: Path) -> None:
    for folder in ("ours", "theirs"):
        (tmp_path / folder).mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    served, stranger = ours.issue("service"), theirs.issue("stranger")

    anonymous = TlsFiles(authority=ours.path)
    forged = TlsFiles(stranger.certificate, stranger.key, ours.path)
    for client in (None, anonymous, forged):
        assert await kind_of_answer(served, client) is Kind.UNAVAILABLE


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="certificate"):
        server_credentials(TlsFiles(authority=tmp_path))
    with pytest.raises(ValueError, match="given together"):
        ChannelTls(TlsFiles(certificate=tmp_path))


@grpc_loop
async def test_a_slow_handshake_is_waited_for(tmp_path: Path) -> None:
    """A busy machine takes a while to answer; one attempt to connect is enough."""
    files = Authority(tmp_path).issue("service")
    served = Served(ServerConfig("127.0.0.1:0"), files)
    await served.start()

    async def forward_late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = served.address.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        await asyncio.sleep(0.4)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        async with asyncio.TaskGroup() as group:
            group.create_task(copy(reader, back))
            group.create_task(copy(there, writer))

    async with await asyncio.start_server(forward_late, "127.0.0.1", 0) as proxy:
        address = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        replicas = Replicas([address], tls=ChannelTls(files), clock=SystemClock())
        try:
            (transport,) = (await replicas.transports()).values()
            await transport.unary(SERVICE, "ListEntries", pb.ListEntriesRequest(), call_in(10))
        finally:
            await replicas.close()
            await served.kill()
