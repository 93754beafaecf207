"""Pages of the web interface over large folders, beside the same pages of small ones.

    python -m bench.web [--objects 1000000] [--small 100] [--rounds 15]

A folder of a branch; a commit of ten new objects in it; comparisons that find these ten, and all. The first view of
each, and the median of later ones, in milliseconds as a client on the same machine sees them. What counts is the ratio
of large to small.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import http.client
import json
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from bench.load.node import Form, Node, running
from bench.load.seeding import OLD, seeder

from tarn.core.ids import BranchId
from tarn_graveler.branch.committing import CommitRequest
from tarn_graveler.records.branches import BranchName

PAGES = {
    "folder": f"objects?ref={{branch}}&prefix=lake/events/{OLD}/",
    "commit of ten": "commits/{branch}",
    "compare over ten": "compare?left={branch}~1&right={branch}",
    "compare over all": "compare?left=main&right={branch}",
}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder), Form(workers=1)) as node:
        asyncio.run(_fill(node, Path(folder), given.objects, given.small))
        print(f"| page | first view of {given.objects:,} | later | of {given.small:,} | ratio |")
        print("| --- | --- | --- | --- | --- |")
        for name, page in PAGES.items():
            times: dict[str, list[float]] = {"small": [], "large": []}
            for _ in range(given.rounds):  # in turns, so that both see the same machine
                for branch, found in times.items():
                    found.append(_time(node, page.format(branch=branch)))
            first, *later = times["large"]
            large, small = statistics.median(later), statistics.median(times["small"][1:])
            print(
                f"| {name} | {first:.1f} ms | {large:.1f} ms | {small:.1f} ms | {large / small:.2f} |",
                flush=True,
            )


async def _fill(node: Node, folder: Path, large: int, small: int) -> None:
    async with seeder(node, folder / "ranges") as own:
        repository = await own.repository("lake")
        for branch, objects in (("small", small), ("large", large)):
            await own.base(repository, branch, objects)
            await own.stage(repository, branch, np.arange(10, dtype=np.int64) * 70 + 5)
            name = BranchName(repository, BranchId(branch))
            await own.graveler.committing.commit(name, CommitRequest("bench", "ten more"))


def _time(node: Node, page: str) -> float:
    """Returns the milliseconds that a page takes, its transfer included."""
    url = urlsplit(json.loads((node.data / "tarn.json").read_text())["api"])
    pair = base64.b64encode(f"{node.access_key_id}:{node.secret}".encode()).decode()
    connection = http.client.HTTPConnection(url.netloc, timeout=600)
    began = time.perf_counter()
    headers = {"Authorization": f"Basic {pair}", "Accept": "text/html"}
    connection.request("GET", f"/repositories/lake/{page}", headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    seconds = time.perf_counter() - began
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{page} was answered with {answer.status}: {body[-500:]!r}")
    return seconds * 1000


if __name__ == "__main__":
    main()
