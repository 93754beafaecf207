"""`tarn fs ls -r` of many objects, beside the difference of as many: two ways to print every path of a ref.

    python -m bench.listing [--objects 200000] [--rounds 2]

Seconds of the whole command, its start included, against a node on the embedded store in another process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
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
    began = time.perf_counter()
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
    seconds = time.perf_counter() - began
    lines = len(done.stdout.splitlines())
    print(f"tarn {' '.join(command)}: {seconds:.1f} s, {lines:,} lines", flush=True)


if __name__ == "__main__":
    main()
