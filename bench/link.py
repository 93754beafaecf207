"""A link of a given rate between this machine's processes and a server that has a network of its own.

The kernel's queue `tbf` sends so many bytes per second each way, and no more. A link has no delay of its own: the queue
`netem`, which makes one, is not in every kernel. It needs root and the command `ip`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LOOPBACK", "Host", "host_behind", "refusal"]

_NEAR: Final = "198.18.0.1"
_FAR: Final = "198.18.0.2"
"""Addresses that RFC 2544 keeps for benchmarks."""
_NEEDED: Final = 1 << 12 | 1 << 21
"""CAP_NET_ADMIN and CAP_SYS_ADMIN."""
_BURST_BYTES: Final = 256 << 10
"""A packet that the kernel has not cut yet may have 64 KiB."""
_QUEUE_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class Host:
    """Where a server runs.

    Attributes:
        address: on which it listens.
        command: begins its command line.
    """

    address: str
    command: tuple[str, ...] = ()


LOOPBACK: Final = Host("127.0.0.1")


def refusal() -> str:
    """Returns why this process cannot make a link; empty if it can."""
    if os.geteuid() or not _may_administer():
        return "a link needs root with all of its rights: it makes a network namespace and sets its rate"
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    return f"a link needs the command {missing[0]}, of the package iproute2" if missing else ""


def _may_administer() -> bool:
    """Whether this process may change networks and mounts: root in a container often may not. See capabilities(7)."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return found is not None and int(found[1], 16) & _NEEDED == _NEEDED


@contextmanager
def host_behind(mbit: int) -> Iterator[Host]:
    """Makes a host behind a link, and removes both at the end.

    Args:
        mbit: rate of each direction, in 1,000,000 bit/s.

    Raises:
        RuntimeError: it cannot be made; the text quotes the command.
    """
    if why := refusal():
        raise RuntimeError(why)
    name = f"tarn{os.getpid()}"
    near, far = f"{name}n", f"{name}f"
    inside = ("ip", "netns", "exec", name)
    _run("ip", "netns", "add", name)
    try:
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        for prefix, device, address in (((), near, _NEAR), (inside, far, _FAR)):
            _run(*prefix, "ip", "address", "add", f"{address}/30", "dev", device)
            _run(*prefix, "ip", "link", "set", device, "up")
            rate = ("rate", f"{mbit}mbit", "burst", str(_BURST_BYTES), "limit", str(_QUEUE_BYTES))
            _run(*prefix, "tc", "qdisc", "add", "dev", device, "root", "tbf", *rate)
        _run(*inside, "ip", "link", "set", "lo", "up")
        yield Host(_FAR, inside)
    finally:
        with suppress(RuntimeError):  # it was not made; without this the kernel removes it later
            _run("ip", "link", "delete", near)
        _run("ip", "netns", "delete", name)


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
