"""The installation's secrets: configured, or in the data folder of a single-node Tarn, which creates the first one."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from tarn.config.errors import ConfigError
from tarn.config.sections import Config
from tarn.config.values import Secret, Sort, parse_value

__all__ = ["installation_secret", "installation_secrets"]

_SECRET_BYTES = 32


def installation_secret(
    config: Config, *, make: bool = False, random_bytes: Callable[[int], bytes] = os.urandom
) -> bytes:
    """Returns the installation's secret, at least 32 bytes.

    With `make` (single node), a secret that is not configured is read from `<data_dir>/secret`. That file is
    created if it does not exist: 64 hex digits, readable only by its owner. Several processes may do so
    concurrently; all of them get the same secret.

    Raises:
        ConfigError: no secret is configured and `make` is False; or other users can read the file, or it
            is damaged.
    """
    given = config.installation.secret
    if given is not None:
        return bytes.fromhex(given.reveal())
    if not make:
        text = "installation.secret is not set: create one with `openssl rand -hex 32`"
        raise ConfigError([f"{text}; TARN_INSTALLATION_SECRET_FILE may name a file that holds it"])
    path = config.data_dir / "secret"
    try:
        if not path.exists():
            _make(path, random_bytes(_SECRET_BYTES).hex())
        return _read(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error


def installation_secrets(config: Config, *, make: bool = False) -> tuple[bytes, ...]:
    """Returns the installation's secret and, during a rotation, the other one.

    Args:
        config: names both.
        make: as for `installation_secret`. A secret of the data folder goes with `<data_dir>/previous_secret`, if that
            exists.

    Raises:
        ConfigError: as `installation_secret`, for either.
    """
    secret = installation_secret(config, make=make)
    previous = config.installation.previous_secret
    if previous is not None:
        return secret, bytes.fromhex(previous.reveal())
    path = config.data_dir / "previous_secret"
    if config.installation.secret is not None or not path.exists():
        return (secret,)
    try:
        return secret, _read(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error


def _make(path: Path, text: str) -> None:
    """Creates the file atomically; if another process has created it meanwhile, that file stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(prefix="secret.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        Path(draft).unlink()


def _read(path: Path) -> bytes:
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError([f"{path}: other users can read it; run `chmod 600` on it"])
    try:
        secret = parse_value(Sort.HEX_SECRET, path.read_text().strip(), Path("/"))
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from error
    assert isinstance(secret, Secret)
    return bytes.fromhex(secret.reveal())
