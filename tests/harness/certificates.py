"""Certificates for TLS between processes of this machine."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tarn.rpc.process.tls import TlsFiles

__all__ = ["Authority", "MountedSecret"]


class Authority:
    """Signs certificates for this machine. The folder is made."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.path = folder / "authority.pem"
        made = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self._write(self.path, made)

    def issue(self, name: str, *names: x509.GeneralName) -> TlsFiles:
        """Issues a certificate with its key; the files trust this authority.

        Args:
            name: the common name, and of the files.
            names: further alternative names, beside the address of this machine.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        made = self._builder(_name(name), key.public_key()).add_extension(
            x509.SubjectAlternativeName([address, *names]), critical=False
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


class MountedSecret:
    """Files for TLS in a folder that is replaced as Kubernetes replaces a mounted Secret: all at once, by a link."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._count = 0
        self.files = TlsFiles(folder / "tls.crt", folder / "tls.key", folder / "ca.crt")
        for path in (self.files.certificate, self.files.key, self.files.authority):
            assert path is not None
            path.symlink_to(f"..data/{path.name}")

    def put(self, issued: TlsFiles, *trusted: Authority) -> None:
        """Replaces the files: by a certificate with its key, and the authorities to trust."""
        assert issued.certificate is not None
        assert issued.key is not None
        self.put_bytes(issued.certificate.read_bytes(), issued.key.read_bytes(), *trusted)

    def put_bytes(self, certificate: bytes, key: bytes, *trusted: Authority) -> None:
        """Replaces the files by any contents."""
        self._count += 1
        content = self._folder / f"..{self._count}"
        content.mkdir()
        (content / "tls.crt").write_bytes(certificate)
        (content / "tls.key").write_bytes(key)
        (content / "ca.crt").write_bytes(b"".join(each.path.read_bytes() for each in trusted))
        link = self._folder / "..new"
        link.symlink_to(content.name)
        link.replace(self._folder / "..data")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
