"""Drain, the end of a server, TLS."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tarn.block.port import FileSlice
from tarn_gateway.http import HttpLimits, Request, Response

pytestmark = pytest.mark.timeout(20)

Serving = Callable[..., Any]
Wire = SimpleNamespace


# --- drain


async def test_drain_lets_current_requests_finish_and_closes_idle_connections(
    serving: Serving, wire: Wire
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        begun.set()
        await go.wait()
        return Response(200, [], b"done")

    async with serving(handler) as stage:
        idle, busy = await stage.connect(), await stage.connect()
        busy.send(wire.get() + wire.get("/never"))
        await begun.wait()
        async with asyncio.TaskGroup() as group:
            draining = group.create_task(stage.server.drain(10))
            assert await idle.ended()
            assert not draining.done()
            go.set()
            answer = await busy.answer()
            assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        assert await busy.ended()
        with pytest.raises(ConnectionRefusedError):
            await stage.connect()
        assert stage.server.connection_count == 0
        assert stage.exchanges.qsize() == 1


async def test_a_drain_answers_a_request_that_a_client_had_begun_to_send(
    serving: Serving, wire: Wire
) -> None:
    """Closed at once, the connection would break without an answer."""

    async def handler(request: Request) -> Response:
        return Response(200, [], b"done")

    async with serving(handler) as stage:
        known, fresh = await stage.connect(), await stage.connect()
        known.send(wire.get())
        assert "connection" not in (await known.answer()).headers, "it is kept"
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.server.drain(10))
            await asyncio.sleep(0.01)
            for client in (known, fresh):
                client.send(wire.get())
                answer = await client.answer()
                assert (answer.status, answer.headers["connection"]) == (200, "close")
                assert await client.ended()


async def test_drain_aborts_what_outlives_its_grace(serving: Serving, wire: Wire) -> None:
    begun = asyncio.Event()

    async def handler(request: Request) -> Response:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with serving(handler) as stage:
        client = await stage.connect()
        client.send(wire.put(b""))
        await begun.wait()
        await stage.server.drain(0.01)
        assert await client.ended()
        assert stage.server.connection_count == 0


async def test_leaving_the_server_aborts_everything(serving: Serving, wire: Wire) -> None:
    cancelled = asyncio.Event()
    begun = asyncio.Event()

    async def handler(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with serving(handler) as stage:
        client = await stage.connect()
        client.send(wire.get())
        await begun.wait()
    assert cancelled.is_set()


# --- TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return make_tls(tmp_path_factory.mktemp("tls"))


def make_tls(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Returns TLS contexts of a server and a client, with a certificate made for this run."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tarn test")])
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=36_500))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "cert.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


async def test_tls_carries_bodies_both_ways(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
    tmp_path: Path,
    serving: Serving,
    wire: Wire,
) -> None:
    data = hashlib.sha256(b"tls").digest() * 100_000
    (tmp_path / "f").write_bytes(data)

    async def handler(request: Request) -> Response:
        assert request.secure
        if request.method == "GET":
            return Response(200, [], FileSlice((tmp_path / "f").open("rb"), 0, len(data)))
        answer: Response = await wire.echo(request)
        return answer

    async with serving(handler, tls=tls) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.get())).body == data
        assert (await client.ask(wire.put(data))).body == data
        assert (await client.ask(wire.chunked([data[:1000], data[1000:]]))).body == data


async def test_no_thread_receives_what_is_encrypted(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        body = bytearray()
        while piece := await request.body.read():
            with request.body.by_thread() as receiver:
                assert receiver is None
            body += piece
        return Response(200, [], bytes(body))

    async with serving(handler, tls=tls) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.put(bytes(2_000_000)))).body == bytes(2_000_000)


async def test_an_early_refusal_over_tls_reaches_the_client(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], serving: Serving, wire: Wire
) -> None:
    async def handler(request: Request) -> Response:
        return Response(403, [], b"no")

    async with serving(handler, HttpLimits(linger_s=0.2), tls=tls) as stage:
        client = await stage.connect()
        assert (await client.ask(wire.put(bytes(1_000_000)))).body == b"no"


async def answers(request: Request) -> Response:
    return Response(200, [], b"yes")


async def silent(stage: Any) -> Any:
    """A connection whose client speaks no TLS."""
    return await replace(stage, tls=None).connect()


async def is_closed(client: Any) -> bool:
    async with asyncio.timeout(10):
        with suppress(ConnectionError):
            while await client.reader.read(100):
                pass  # an alert, then the end
    return True


async def test_beyond_the_bound_the_oldest_handshake_gives_way(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], serving: Serving, wire: Wire
) -> None:
    async with serving(answers, HttpLimits(tls_handshakes_max=2), tls=tls) as stage:
        flood = [await silent(stage) for _ in range(3)]
        assert await is_closed(flood[0])
        client = await stage.connect()
        assert (await client.ask(wire.get())).body == b"yes"
        assert await is_closed(flood[1])
        assert not flood[2].reader.at_eof()
        assert (await client.ask(wire.get())).body == b"yes", "its handshake is over"


async def test_a_handshake_that_gives_way_before_it_began_is_closed(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], serving: Serving
) -> None:
    async with serving(answers, HttpLimits(tls_handshakes_max=1), tls=tls) as stage:
        # Both are accepted in one turn of the loop, which these calls hold up.
        flood = [socket.create_connection(("127.0.0.1", stage.port)) for _ in range(2)]
        reader, writer = await asyncio.open_connection(sock=flood[0])
        assert await is_closed(SimpleNamespace(reader=reader))
        writer.close()
        flood[1].close()


async def test_a_client_that_speaks_no_tls_or_leaves_is_closed(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], serving: Serving, wire: Wire
) -> None:
    async with serving(answers, HttpLimits(tls_handshake_timeout_s=0.2), tls=tls) as stage:
        plain, gone, mute = [await silent(stage) for _ in range(3)]
        plain.writer.write(wire.get())
        gone.writer.transport.abort()
        assert await is_closed(plain)
        assert await is_closed(mute), "after its time"
        client = await stage.connect()
        assert (await client.ask(wire.get())).body == b"yes"


async def test_a_stop_ends_handshakes(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], serving: Serving
) -> None:
    async with serving(answers, tls=tls) as stage:
        mute = await silent(stage)
        await stage.server.drain(grace_s=5)
        assert await is_closed(mute)
        with pytest.raises(ConnectionError):
            await silent(stage)


async def test_no_answer_lets_a_browser_guess_its_type(serving: Serving, wire: Wire) -> None:
    async def handler(request: Request) -> Response:
        if request.raw_path == b"/broken":
            raise RuntimeError("broken")
        return Response(200, [], b"<script>")

    async with serving(handler) as stage:
        for sent in (wire.get(), wire.get("/broken"), b"GET <script> HTTP/1.1\r\n\r\n"):
            client = await stage.connect()
            client.send(sent)
            assert (await client.answer()).headers["x-content-type-options"] == "nosniff"
