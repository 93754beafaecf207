"""`tarn fs ls -r` of many objects, beside the difference of as many: two ways to print every path of a ref.

    python -m bench.listing [--objects 200000] [--rounds 2]

Seconds of the whole command, its start included, against a node on the embedded store in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.load.node import Form, Node, running
from bench.load.seeding import seeder


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), Form()) as node:
        asyncio.run(_fill(node, Path(folder), given.objects))
        for _ in range(given.rounds):
            for command in (
                ["fs", "ls", "-r", "lake/full/"],
                ["diff", "lake/main", "lake/full", "-n", "0"],
            ):
                _time(node, command)


async def _fill(node: Node, folder: Path, objects: int) -> None:
    async with seeder(node, folder) as own:
        repository = await own.repository("lake")
        await own.base(repository, "full", objects)


def _time(node: Node, command: list[str]) -> None:
    began, cpu_s, served_s = time.perf_counter(), _cpu_of_children(), node.processes.cpu_s()
    done = subprocess.run(
        [sys.executable, "-m", "tarn_cli", *command],
        env={
            **os.environ,
            "TARN_ENDPOINT": node.endpoint,
            "TARN_SERVER": node.server,
            "TARN_AUTH_SERVER": node.auth_server,
            "TARN_ACCESS_KEY_ID": node.access_key_id,
            "TARN_SECRET_ACCESS_KEY": node.secret,
        },
        stdout=subprocess.PIPE,
        check=True,
        timeout=600,
    )
    seconds, cpu_s = time.perf_counter() - began, _cpu_of_children() - cpu_s
    lines = len(done.stdout.splitlines())
    served_s = node.processes.cpu_s() - served_s
    text = f"{seconds:.1f} s, processor time {cpu_s:.1f} + {served_s:.1f} s of the node, {lines:,} lines"
    print(f"tarn {' '.join(command)}: {text}", flush=True)


def _cpu_of_children() -> float:
    """Processor time of all commands that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
