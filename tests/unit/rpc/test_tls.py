"""TLS and mutual TLS with certificates that openssl makes here."""

from __future__ import annotations

import datetime as dt
import ipaddress
import random
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tarn.core.errors import Kind
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.process.telemetry import Meters, Tracing
from tarn.rpc.process.tls import TlsFiles, channel_credentials, server_credentials
from tarn.rpc.server.grpc_server import RpcServer, ServerConfig
from tarn.testing.servers.toy_service import SERVICE, Toy, call_in, failure
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
grpc_loop = pytest.mark.asyncio(loop_scope="session")


class Authority:
    """Signs certificates for this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.path = folder / "authority.pem"
        made = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._write(self.path, made)

    def issue(self, name: str) -> TlsFiles:
        """Issues a certificate with its key; the files trust this authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = self._builder(_name(name), key.public_key()).add_extension(
            x509.SubjectAlternativeName([address]), critical=False
        )
        files = TlsFiles(self._folder / f"{name}.pem", self._folder / f"{name}.key", self.path)
        assert files.certificate is not None
        assert files.key is not None
        self._write(files.certificate, made)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + dt.timedelta(days=36_500))
        )

    def _write(self, path: Path, made: x509.CertificateBuilder) -> None:
        signed = made.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


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
    credentials = None if client_files is None else channel_credentials(client_files)
    transport = GrpcTransport([address], credentials=credentials, clock=clock, rng=rng)
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


def test_half_a_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="certificate"):
        server_credentials(TlsFiles(authority=tmp_path))
    with pytest.raises(ValueError, match="given together"):
        channel_credentials(TlsFiles(certificate=tmp_path))
