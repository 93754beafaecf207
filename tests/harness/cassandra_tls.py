"""Certificates and settings of a node that requires a password and a client certificate."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Identity", "identity_of", "secured"]

_TOOLS = Path(__file__).parents[2] / "tools"
_WORD = "changeit"


@dataclass(frozen=True, slots=True)
class Identity:
    """A key and its self-signed certificate.

    Attributes:
        store: PKCS#12, for Java.
        cert: PEM.
        key: PEM.
    """

    store: Path
    cert: Path
    key: Path


def identity_of(name: str, folder: Path, address: str = "127.0.0.1") -> Identity:
    """Creates an identity for an IP address, with the tools of Java and openssl."""
    store, cert, key = (folder / f"{name}.{end}" for end in ("p12", "pem", "key"))
    words = ("-storepass", _WORD, "-alias", name, "-keystore", str(store))
    _run(
        *(_keytool(), "-genkeypair", *words, "-keyalg", "EC", "-groupname", "secp256r1"),
        *("-storetype", "PKCS12", "-dname", f"CN={name}", "-ext", f"SAN=ip:{address}"),
    )
    _run(_keytool(), "-exportcert", *words, "-rfc", "-file", str(cert))
    _run(
        *("openssl", "pkcs12", "-in", str(store), "-passin", f"pass:{_WORD}", "-nocerts"),
        *("-nodes", "-out", str(key)),
    )
    return Identity(store, cert, key)


def secured(node: Identity, client: Identity, folder: Path) -> str:
    """Returns the lines of cassandra.yaml for such a node."""
    trusted = folder / "trusted.p12"
    _run(
        *(_keytool(), "-importcert", "-noprompt", "-storetype", "PKCS12", "-alias", "client"),
        *("-storepass", _WORD, "-keystore", str(trusted), "-file", str(client.cert)),
    )
    return f"""
authenticator: PasswordAuthenticator
authorizer: CassandraAuthorizer
client_encryption_options:
  enabled: true
  optional: false
  require_client_auth: true
  keystore: {node.store}
  keystore_password: {_WORD}
  truststore: {trusted}
  truststore_password: {_WORD}
"""


def _keytool() -> str:
    done = subprocess.run([str(_TOOLS / "java-home")], capture_output=True, text=True, check=True)
    return str(Path(done.stdout.strip()) / "bin" / "keytool")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
