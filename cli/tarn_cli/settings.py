"""The addresses and the key pair that commands use.

Each value comes from the first source that has it: a flag, the environment, `credentials` in the folder `.tarn` of the
context (`tarn_cli.context`), the user's `config.yaml`. The files are YAML with the keys of `Settings` and mode 0600.
The secret is used only to sign.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tarn_cli.exits import CliError, Exit

if TYPE_CHECKING:  # it imports gRPC, which most commands need only later, and some never
    from tarn.rpc.process.tls import TlsFiles

__all__ = [
    "Settings",
    "default_file",
    "read_file",
    "settings_of_environment",
    "variable_of",
    "write_file",
]

DEFAULT_SERVER = "127.0.0.1:8102"
DEFAULT_COMPACTOR = "127.0.0.1:8103"
DEFAULT_ENDPOINT = "http://127.0.0.1:8000"
_TLS = ("rpc_tls_ca", "rpc_tls_cert", "rpc_tls_key")


@dataclass(frozen=True, slots=True)
class Settings:
    """Addresses and key pair. An empty value is not set.

    Attributes:
        server: `host:port` of graveler's rpc.
        auth_server: `host:port` of auth, if it is a separate process.
        endpoint: URL of the S3 endpoint.
        access_key_id: public half of the key pair.
        secret_access_key: secret half of the key pair.
        compactor_server: `host:port` of the compactors.
        rpc_tls_ca: PEM file with the authorities of the servers' certificates, if services use TLS.
        rpc_tls_cert: PEM file with a certificate for this client, which services with mutual TLS require.
        rpc_tls_key: PEM file with that certificate's key.
        data_dir: absolute path of the installation's data folder, if it is on this machine.
        config_file: absolute path of the configuration of its services.
        endpoint_ca: PEM file with the authorities of the S3 endpoint's certificate; if not set, those of the system.
    """

    server: str = ""
    auth_server: str = ""
    endpoint: str = ""
    access_key_id: str = ""
    secret_access_key: str = ""
    compactor_server: str = ""
    rpc_tls_ca: str = ""
    rpc_tls_cert: str = ""
    rpc_tls_key: str = ""
    data_dir: str = ""
    config_file: str = ""
    endpoint_ca: str = ""

    def __repr__(self) -> str:  # the secret stays out of tracebacks
        return f"Settings({self.server!r}, {self.endpoint!r}, {self.access_key_id!r})"

    def over(self, other: Settings) -> Settings:
        """These values, and the other's values where these are not set.

        The halves of a key pair, and the addresses of an installation, are never mixed.
        """
        merged = {f.name: getattr(self, f.name) or getattr(other, f.name) for f in fields(self)}
        if self.access_key_id and self.access_key_id != other.access_key_id:
            merged["secret_access_key"] = self.secret_access_key
        if self.endpoint and self.endpoint != other.endpoint:
            merged["endpoint_ca"] = self.endpoint_ca
        if self.server and self.server != other.server:
            merged["auth_server"] = self.auth_server
            merged["compactor_server"] = self.compactor_server
            if other.server:
                merged["data_dir"], merged["config_file"] = self.data_dir, self.config_file
        return Settings(**merged)

    def with_defaults(self) -> Settings:
        """These values, and the default addresses of `tarn up` where these are not set."""
        return self.over(Settings(server=DEFAULT_SERVER, endpoint=DEFAULT_ENDPOINT))

    def tls(self) -> TlsFiles | None:
        """Returns the files for TLS to the services; None for plain text.

        Raises:
            CliError: USAGE, only one of certificate and key is set; NOT_FOUND, a file does not exist.
        """
        from tarn.rpc.process.tls import TlsFiles

        ca, cert, key = (
            Path(text) if text else None for text in (getattr(self, name) for name in _TLS)
        )
        if (cert is None) != (key is None):
            hint = "set TARN_RPC_TLS_CERT and TARN_RPC_TLS_KEY"
            raise CliError(Exit.USAGE, "a certificate and its key belong together", hint)
        for path in (ca, cert, key):
            if path is not None and not path.is_file():
                raise CliError(Exit.NOT_FOUND, f"no such file: {path}")
        if ca is None and cert is None:
            return None
        return TlsFiles(certificate=cert, key=key, authority=ca)

    def endpoint_authorities(self) -> str | None:
        """Returns the file with the authorities of the S3 endpoint; None for those of the system.

        Raises:
            CliError: NOT_FOUND, the file does not exist.
        """
        if self.endpoint_ca and not Path(self.endpoint_ca).is_file():
            hint = "TARN_ENDPOINT_CA or endpoint_ca of the settings file names it"
            raise CliError(Exit.NOT_FOUND, f"no such file: {self.endpoint_ca}", hint)
        return self.endpoint_ca or None

    def require_key(self) -> Settings:
        """Returns these settings if they have a complete key pair.

        Raises:
            CliError: DENIED, no complete key pair is set; the hint says how to set one.
        """
        if self.access_key_id and self.secret_access_key:
            return self
        what = "no secret for this access key id" if self.access_key_id else "no credentials"
        hint = "run `tarn auth login`, or set TARN_ACCESS_KEY_ID and TARN_SECRET_ACCESS_KEY"
        raise CliError(Exit.DENIED, what, hint)


def variable_of(name: str) -> str:
    """The environment variable of a field."""
    return f"TARN_{name.upper()}"


def settings_of_environment(environment: Mapping[str, str]) -> Settings:
    """The settings in the environment variables."""
    return Settings(**{f.name: environment.get(variable_of(f.name), "") for f in fields(Settings)})


def default_file(environment: Mapping[str, str]) -> Path:
    """Path of this user's `config.yaml`, by the XDG rules."""
    base = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "tarn" / "config.yaml"


def read_file(path: Path) -> Settings:
    """The settings in a file; none are set if the file does not exist.

    Raises:
        CliError: USAGE, the file is not a YAML mapping of known keys to strings.
    """
    try:
        text = path.read_text()
    except FileNotFoundError:
        return Settings()
    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        reason = str(error).replace("\n", " ")
        raise CliError(Exit.USAGE, f"{path} is not YAML: {reason}") from error
    known = {f.name for f in fields(Settings)}
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise CliError(Exit.USAGE, f"{path} must map {', '.join(sorted(known))} to strings")
    if unknown := sorted(set(found) - known):
        hint = f"known keys: {', '.join(sorted(known))}"
        raise CliError(Exit.USAGE, f"{path} has the unknown key {unknown[0]!r}", hint)
    return Settings(**found)


def write_file(path: Path, settings: Settings) -> None:
    """Replaces the file atomically; only its owner may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {key: value for key, value in asdict(settings).items() if value}
    # mkstemp makes the file with mode 0600.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(values, file, sort_keys=False)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
