"""The support bundle of `tarn debug bundle`: one archive that tells how an installation runs, without secrets."""

from __future__ import annotations

import io
import json
import platform
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from tarn.config import KEYS, Config, variables_of
from tarn.core.clock import Clock
from tarn_cli.doctor import Finding, admin_page

__all__ = ["LOG_BYTES_MAX", "file_name", "write_bundle"]

LOG_BYTES_MAX = 4 << 20
"""Greatest number of bytes of the log that a bundle holds: its end."""

_NOT_SET = "(not set)"
_SECRET = "(set; not in the bundle)"  # noqa: S105 - what stands in its place


def write_bundle(
    out: Path,
    config: Config,
    findings: Sequence[Finding],
    admin_ports: Mapping[str, str],
    log: Path,
    clock: Clock,
) -> list[str]:
    """Writes the archive, readable by its owner only; returns the names of its files.

    Args:
        out: a `.tar.gz` that does not exist yet.
        config: of the services; the values of secrets are left out.
        findings: of `tarn doctor`.
        admin_ports: admin ports of running processes by their names.
        log: the log of `tarn up --detach`; need not exist.
        clock: the times of the files.

    Raises:
        FileExistsError: `out` exists.
        OSError: it cannot be written.
    """
    names = []
    with (
        out.open("xb") as stream,
        tarfile.open(fileobj=stream, mode="w:gz") as archive,
    ):
        out.chmod(0o600)
        for name, text in _files(config, findings, admin_ports, log):
            body = text.encode()
            entry = tarfile.TarInfo(f"tarn-bundle/{name}")
            entry.size, entry.mode, entry.mtime = len(body), 0o600, clock.now_us() // 1_000_000
            archive.addfile(entry, io.BytesIO(body))
            names.append(name)
    return names


def _files(
    config: Config, findings: Sequence[Finding], admin_ports: Mapping[str, str], log: Path
) -> Iterator[tuple[str, str]]:
    yield "versions.txt", _versions()
    yield "configuration.txt", _configuration(config)
    results = [
        {"check": each.check, "result": each.level.value, "text": each.text} for each in findings
    ]
    yield "doctor.json", json.dumps(results, indent=2) + "\n"
    for name, address in admin_ports.items():
        for folder, path in (("metrics", "/metrics"), ("stacks", "/debug/stacks")):
            try:
                page = admin_page(address, path)
            except OSError as error:
                page = f"# no answer of {address}: {error}\n"
            yield f"{folder}/{file_name(name)}.txt", page
    if log.exists():
        yield "tarn.log", _end_of(log)


def file_name(process: str) -> str:
    """Returns the name of a process as a part of the name of a file."""
    return process.replace(":", "-").replace("/", "-")


def _versions() -> str:
    packages = sorted(f"{each.metadata['Name']} {each.version}" for each in distributions())
    machine = [platform.platform(), f"Python {sys.version}"]
    return "\n".join([*machine, *packages]) + "\n"


def _configuration(config: Config) -> str:
    """Returns every key with its value; of a secret, only whether it is set."""
    values = variables_of(config)
    lines = []
    for key in KEYS:
        value = values.get(key.variable, _NOT_SET)
        if key.is_secret and value != _NOT_SET:
            value = _SECRET
        lines.append(f"{key.name}: {value}")
    return "\n".join(lines) + "\n"


def _end_of(log: Path) -> str:
    with log.open("rb") as stream:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(max(0, size - LOG_BYTES_MAX))
        return stream.read(LOG_BYTES_MAX).decode(errors="replace")
