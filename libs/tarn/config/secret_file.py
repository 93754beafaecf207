"""The installation's secret: given, or made once by a single-node Tarn."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from tarn.config.errors import ConfigError
from tarn.config.sections import Config
from tarn.config.values import Secret, Sort, parse_value

__all__ = ["installation_secret"]

_SECRET_BYTES = 32


def installation_secret(
    config: Config, *, make: bool = False, random_bytes: Callable[[int], bytes] = os.urandom
) -> bytes:
    """The installation's secret, at least 32 bytes.

    With `make` (single node), one that is not given is read from `<data_dir>/secret`, which is made if
    it is not there: 64 hex digits, readable by its owner alone. Several processes may do so at once;
    all of them get the same.

    Raises:
        ConfigError: none is given and none may be made, or the file is open to others or damaged.
    """
    given = config.installation.secret
    if given is not None:
        return bytes.fromhex(given.reveal())
    if not make:
        text = "installation.secret is not set: `openssl rand -hex 32` makes one"
        raise ConfigError([f"{text}; TARN_INSTALLATION_SECRET_FILE may name a file that holds it"])
    path = config.data_dir / "secret"
    try:
        if not path.exists():
            _make(path, random_bytes(_SECRET_BYTES).hex())
        return _read(path)
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error


def _make(path: Path, text: str) -> None:
    """Makes the file whole or not at all; one that another process made meanwhile stays."""
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
        raise ConfigError([f"{path}: is open to other users of this machine; `chmod 600` it"])
    try:
        secret = parse_value(Sort.HEX_SECRET, path.read_text().strip(), Path("/"))
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from error
    assert isinstance(secret, Secret)
    return bytes.fromhex(secret.reveal())
