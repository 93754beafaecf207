"""Configuration files: any bytes are either a configuration or problems with their places."""

from __future__ import annotations

import atexit
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.support.fuzz.target import PropertyError, Target

from tarn.config.errors import ConfigError
from tarn.config.key_table import KEYS
from tarn.config.loading import load

__all__ = ["TARGET"]

_SECRET = "c0ffee" * 12
_SECRET_KEYS = {key.name for key in KEYS if key.is_secret}


def _file() -> Callable[[bytes], Path]:
    """Returns the path of a file of this process, created on first use."""
    made: list[Path] = []

    def written(data: bytes) -> Path:
        if not made:
            folder = tempfile.TemporaryDirectory(prefix="tarn-fuzz-yaml-")
            atexit.register(folder.cleanup)
            made.append(Path(folder.name) / "tarn.yaml")
        made[0].write_bytes(data)
        return made[0]

    return written


_written = _file()


def _check(data: bytes) -> str:
    path = _written(data)
    try:
        config = load(path, {"HOME": "/home/tarn"})
    except ConfigError as error:
        if not error.problems or not all(error.problems):
            raise PropertyError("a refusal says nothing") from error
        for problem in error.problems:
            # Under any other key it is not a secret but a wrong value, and the problem quotes it.
            if _SECRET in problem and any(f" {name} " in problem for name in _SECRET_KEYS):
                raise PropertyError("a refusal tells a secret") from error
        raise
    if _SECRET in repr(config):
        raise PropertyError("a configuration shows a secret")
    return "taken"


def _setting(rng: random.Random, data: bytes) -> bytes:
    """Inserts a known key with some value at a random place."""
    parts = rng.choice(KEYS).name.split(".")
    value = rng.choice(_VALUES)
    if rng.random() < 0.3:
        lines = [f"{'.'.join(parts)}: {value}"]
    else:
        lines = [f"{'  ' * depth}{part}:" for depth, part in enumerate(parts)]
        lines[-1] += f" {value}"
    places = [0, *(at + 1 for at in range(len(data)) if data[at : at + 1] == b"\n")]
    at = rng.choice(places)
    return data[:at] + "\n".join(lines).encode() + b"\n" + data[at:]


def _bomb(rng: random.Random, data: bytes) -> bytes:
    """Returns a deeply nested document, or one that repeats itself by aliases."""
    depth = rng.choice((50, 400, 3000))
    kind = rng.randrange(6)
    if kind == 0:
        return data + b"\n" + rng.choice((b"[", b"{", b"- ", b"? ", b"{a: ")) * depth
    if kind == 1:
        return data + b"\n" + b"[" * depth + b"]" * depth
    if kind == 2:
        lines = [b"a0: &a0 [x, x, x, x, x, x, x, x]"]
        lines += [
            b"a%d: &a%d [%b]" % (level, level, b", ".join([b"*a%d" % (level - 1)] * 9))
            for level in range(1, rng.choice((3, 9, 30)))
        ]
        return b"\n".join(lines) + b"\n" + data
    if kind == 3:
        return b"logging: &x\n  level: *x\n  <<: *x\n" + data
    if kind == 4:
        return b"\n".join(b" " * level + b"a:" for level in range(min(depth, 400)))
    return data + b'\ninstallation:\n  id: "' + rng.choice((b"\\x41", b"\\U0010FFFF", b"\\")) * 50


_VALUES = (
    "1", "-1", "9" * 30, "9" * 5000, "1e400", "0x10", "0o7", ".inf", "1_000", "12:30:45", "~", "null",
    "true", "no", '""', "[]", "[a, b]", "{}", "{a: b}", "127.0.0.1:8000", "[::1]:1", "h:99999999999",
    "10s", "5 MiB", "9" * 4000 + "d", "~/x", "~root", "/a", '"\\0"', "|\n    text", "!!int 3",
    "!!python/object/apply:os.system [x]", "!!binary AAAA", "2001-01-01", "json", "debug", "embedded",
    _SECRET, "c0ffee", "*x", "&x y", "٣", "٣s", "²",
)  # fmt: skip

TARGET = Target(
    "yaml",
    _check,
    refusals=(ConfigError,),
    traced=(
        "tarn.config.loading",
        "tarn.config.values",
        "tarn.config.sections",
        "yaml.composer",
        "yaml.parser",
    ),
    mutations=(_setting, _setting, _bomb),
    tokens=(b"\n", b": ", b"- ", b"? ", b"&a ", b"*a", b"<<: ", b"!!", b"%YAML 1.1\n---\n", b"---\n",
            b"...\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"\xc2\x85", b"\t", b"# c\n",
            b'"\\UFFFFFFFF"', b'"\\x4', b"%YAML " + b"9" * 5000),
    input_bytes_max=6000,
    cpu_s=5.0,
)  # fmt: skip
