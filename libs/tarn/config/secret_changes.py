"""Secrets that change while a process runs, because the files that hold them were replaced.

Only the settings whose variable ends in `_FILE` change: the installation's secrets, and the credentials of the
metadata store and of the bucket. The certificates for the stores and that of the S3 endpoint are watched, too: their
settings are paths and stay.
Kubernetes replaces the files of a mounted Secret when the Secret changes. All other settings stay as they were at the
start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from tarn.config.key_table import KEYS
from tarn.config.loading import load, value_of, variables_of
from tarn.config.sections import Blockstore, Config, EndpointTls
from tarn.config.setting import FromFile

__all__ = [
    "SecretChanges",
    "SecretFiles",
    "certificates_of_blocks",
    "certificates_of_endpoint",
    "certificates_of_kv",
    "changed_secrets",
    "contents_of",
]

UseSecrets = Callable[[Config], Awaitable[None]]
"""Takes the secrets of a configuration into use. Does nothing if its own have not changed. Raises `TarnError` if they
cannot be used, and then goes on with the ones that it has."""

_CREDENTIALS = tuple(key for key in KEYS if key.from_file is not FromFile.NO)


class SecretChanges:
    """Those parts of a process that use secrets, and are told of new ones."""

    def __init__(self) -> None:
        self._users: list[UseSecrets] = []

    def subscribe(self, use: UseSecrets) -> None:
        """Adds a user of secrets."""
        self._users.append(use)

    @property
    def users(self) -> tuple[UseSecrets, ...]:
        """All users, in the order in which they subscribed."""
        return tuple(self._users)


class SecretFiles:
    """The files from which a process has its secrets.

    Args:
        config: the configuration that the process was started with.
        environment: the environment that it was loaded with; its `_FILE` variables name the files.

    Attributes:
        paths: the files, and those of certificates for the stores and of the endpoints.
        variables: the configuration as variables of the environment, with these files instead of their contents. For
            processes that this one starts; reveals secrets that come from no file (`variables_of`).
    """

    def __init__(self, config: Config, environment: Mapping[str, str]) -> None:
        named = {key for key in _CREDENTIALS if key.file_variable in environment}
        files = {key.file_variable: environment[key.file_variable] for key in named}
        from_files = {key.variable for key in named}
        fixed = {
            name: text for name, text in variables_of(config).items() if name not in from_files
        }
        certificates = (
            *certificates_of_kv(config),
            *certificates_of_blocks(config.blockstore),
            *certificates_of_endpoint(config.gateways.s3.tls),
            *certificates_of_endpoint(config.api.tls),
        )
        self.paths = (*(Path(path) for path in files.values()), *certificates)
        self.variables = {**fixed, **files}

    def contents(self) -> tuple[bytes | None, ...]:
        """Reads the files; None for one that cannot be read. For comparison only."""
        return contents_of(self.paths)

    def load(self) -> Config:
        """Returns the configuration of the start with the secrets that the files hold now.

        Raises:
            ConfigError: a file is damaged, or they do not fit together. The text shows no secret.
        """
        return load(None, self.variables)


def certificates_of_kv(config: Config) -> tuple[Path, ...]:
    """Returns the files of the authority, the certificate and the key for the metadata store; empty without TLS."""
    tls = config.metadata.db.cassandra.tls
    if config.metadata.db.type != "cassandra" or not tls.enabled:
        return ()
    return tuple(path for path in (tls.ca, tls.cert, tls.key) if path is not None)


def certificates_of_blocks(section: Blockstore) -> tuple[Path, ...]:
    """Returns the file of the authorities of the bucket's server; empty for those of the system."""
    ca = section.s3.tls.ca
    return () if section.type != "s3" or ca is None else (ca,)


def certificates_of_endpoint(tls: EndpointTls) -> tuple[Path, ...]:
    """Returns the files of an endpoint's certificate and its key; empty without TLS."""
    return () if tls.cert is None or tls.key is None else (tls.cert, tls.key)


def contents_of(paths: Iterable[Path]) -> tuple[bytes | None, ...]:
    """Reads files; None for one that cannot be read. For comparison only."""
    return tuple(map(_content, paths))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def changed_secrets(old: Config, new: Config) -> list[str]:
    """Returns the names of the credentials in which two configurations differ."""
    return [key.name for key in _CREDENTIALS if value_of(old, key) != value_of(new, key)]
