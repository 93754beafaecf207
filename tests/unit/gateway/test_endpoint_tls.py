"""The certificate of the S3 endpoint is renewed without a restart, on both event loops; open connections go on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from certificates import Authority, MountedSecret
from cryptography import x509
from structlog.testing import capture_logs
from tests.support.clock import ManualClock, SeededIds

from tarn.config import Config, ConfigError, SecretChanges, SecretFiles, load
from tarn.rpc.process.endpoint_tls import endpoint_tls
from tarn.rpc.process.secret_watch import SecretWatch
from tarn.telemetry.meters import Meters
from tarn_gateway.http import HttpLimits, HttpServer, Request, Response


class Endpoint:
    """A listener with the endpoint's certificate, and the watch of its files."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "authority")
        self.mounted = MountedSecret(folder / "mounted")
        self.renew("first")
        environment = {
            "HOME": "/",
            "TARN_GATEWAYS_S3_TLS_CERT": str(self.mounted.files.certificate),
            "TARN_GATEWAYS_S3_TLS_KEY": str(self.mounted.files.key),
        }
        self.config: Config = load(None, environment)
        changes = SecretChanges()
        self.context = endpoint_tls("gateways.s3", self.config.gateways.s3.tls, changes)
        files = SecretFiles(self.config, environment)
        self.watch = SecretWatch(self.config, files, changes, ManualClock(), Meters())

    def renew(self, name: str) -> None:
        self.mounted.put(self.authority.issue(name), self.authority)

    async def looks(self) -> list[str]:
        with capture_logs() as lines:
            for _ in range(2):
                await self.watch.look()
        return [line["event"] for line in lines]


async def name_of(port: int, trusted: Path, server_name: str | None) -> str:
    """Returns the common name in the certificate of a new connection, which must be trusted."""
    context = ssl.create_default_context(cafile=trusted)
    # By its address the client sends no name.
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname=server_name or "127.0.0.1"
    )
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await reader.read()
    (name,) = x509.load_der_x509_certificate(found).subject
    return str(name.value)


async def check_renewal(folder: Path) -> None:
    endpoint = Endpoint(folder)
    trusted = endpoint.authority.path

    async def answer(_: Request) -> Response:
        return Response(200)

    clock = ManualClock()
    async with HttpServer(answer, HttpLimits(), clock=clock, ids=SeededIds(clock)) as server:
        port = await server.listen("127.0.0.1", 0, tls=endpoint.context)
        assert await name_of(port, trusted, None) == "first"
        open_one = await asyncio.open_connection(
            "127.0.0.1", port, ssl=ssl.create_default_context(cafile=trusted)
        )
        await ask(*open_one)
        assert await endpoint.looks() == []
        endpoint.renew("second")
        assert await name_of(port, trusted, None) == "first", "not before the files stand still"
        assert "certificates reloaded" in await endpoint.looks()
        assert await name_of(port, trusted, None) == "second"
        await ask(*open_one)
        endpoint.mounted.put_bytes(b"no certificate", b"no key", endpoint.authority)
        assert await endpoint.looks() == ["the new secrets are not used"]
        assert await name_of(port, trusted, None) == "second"
        endpoint.renew("third")
        assert "certificates reloaded" in await endpoint.looks()
        assert await name_of(port, trusted, None) == "third"
        await ask(*open_one)
        open_one[1].close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Has an open connection answer a request."""
    writer.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_new_connections_get_the_new_certificate(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(check_renewal(tmp_path))


def test_a_certificate_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    endpoint = Endpoint(tmp_path)
    endpoint.mounted.put_bytes(b"no certificate", b"no key", endpoint.authority)
    with pytest.raises(ConfigError, match=r"gateways\.s3\.tls"):
        endpoint_tls("gateways.s3", endpoint.config.gateways.s3.tls)
