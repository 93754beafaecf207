"""Staging tokens over a listing, laid by a test, for comparisons of listings with those of a dict."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pyarrow as pa
from lake import Lake, entry

from tarn.core.branch import Token
from tarn.core.entry import TOMBSTONE
from tarn.core.ids import MetarangeId
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Partition
from tarn_graveler.branch.layers import Layers

__all__ = ["Laid", "Rows", "random_path", "random_request", "random_rows"]

Rows = dict[str, bytes]

LETTERS = "ab/\n\0é\ud7ff\U0010ffff"


class Laid:
    """Tokens over a listing, with a dict of the rows of each, newest first."""

    def __init__(self, lake: Lake, layers: Sequence[Rows], rows_min: int = 1) -> None:
        self.lake = lake
        self.layers = list(layers)
        parts = lake.graveler
        self.reader = Layers(
            lake.kv,
            parts.repositories,
            parts.commits,
            parts.committed,
            parts.branches.events,
            leap_rows_min=rows_min,
        )
        self.tokens: list[Token] = [parts.branches.new_token() for _ in layers[:-1]]
        self.base: MetarangeId | None = None

    async def write(self) -> None:
        await self.build(self.layers[-1])
        for token, rows in zip(self.tokens, self.layers, strict=False):
            await self.put(token, rows)

    async def build(self, rows: Rows) -> None:
        async def stream() -> AsyncIterator[pa.RecordBatch]:
            paths = sorted(rows)
            yield pa.record_batch(
                [pa.array(paths, pa.string()), pa.array([rows[p] for p in paths], pa.binary())],
                names=["path", "value"],
            )

        namespace = self.lake.repository.storage_namespace
        built = await self.lake.graveler.committed.build(namespace, None, [stream()])
        self.base = built.metarange_id

    async def stage(self, rows: Rows, depth: int = 0) -> None:
        """Writes rows to a token: to the staging token, or to one beneath it."""
        self.layers[depth].update(rows)
        await self.put(self.tokens[depth], rows)

    async def put(self, token: Token, rows: Rows) -> None:
        groups = [Group(path_key(path), ((path_key(path), row),)) for path, row in rows.items()]
        assert not any(await self.lake.kv.set_many(self.partition(token), groups))

    async def fold(self, count: int) -> None:
        """Folds the tokens into the listing beneath, as a compaction does, and gives the branch new ones."""
        merged: Rows = {}
        for rows in reversed(self.layers):
            merged.update(rows)
        self.layers = [{} for _ in range(count)]
        self.layers.append({path: row for path, row in merged.items() if row != TOMBSTONE})
        self.tokens = [self.lake.graveler.branches.new_token() for _ in range(count)]
        await self.build(self.layers[-1])

    def partition(self, token: Token) -> Partition:
        return self.reader.partition(self.lake.main, token)

    async def listed(self, request: PageRequest) -> list[tuple[str, bytes]]:
        """Returns all lines of a listing, page by page."""
        lines: list[tuple[str, bytes]] = []
        for _ in range(1000):
            page = await self.reader.page(self.lake.main, self.tokens, self.base, request)
            assert len(page.paths) <= request.limit
            lines += zip(page.paths, page.entries, strict=True)
            if page.next_after is None:
                return lines
            further = replace(request, after=page.next_after)
            assert further.start > request.start
            request = further
        raise AssertionError("the listing does not end")

    def expected(self, request: PageRequest) -> list[tuple[str, bytes]]:
        merged: Rows = {}
        for rows in reversed(self.layers):
            merged.update(rows)
        lines: dict[str, bytes] = {}
        for path, row in sorted(merged.items()):
            if (
                request.is_over
                or row == TOMBSTONE
                or not path.startswith(request.prefix)
                or path < request.start
            ):
                continue
            at = path.find(request.delimiter, len(request.prefix)) if request.delimiter else -1
            line = (path, row) if at < 0 else (path[: at + len(request.delimiter)], b"")
            lines[line[0]] = line[1]
        return list(lines.items())


def random_path(rng: random.Random) -> str:
    if rng.random() < 0.6:
        return f"{rng.choice('xyz')}/{rng.randrange(60):02}"
    return "".join(rng.choices(LETTERS, k=rng.randint(1, 4)))


def random_rows(rng: random.Random, paths: Sequence[str], *, staged: bool) -> Rows:
    share, dead = rng.random(), rng.choice((0.0, 0.3, 0.9, 1.0)) if staged else 0.0
    return {
        path: TOMBSTONE if rng.random() < dead else entry(rng.randrange(1000))
        for path in paths
        if rng.random() < share
    }


def random_request(rng: random.Random) -> PageRequest:
    return PageRequest(
        prefix=rng.choice(("", "", "x/", "y", "é", "a\n")),
        delimiter=rng.choice(("", "", "/", "a", "\U0010ffff")),
        after=rng.choice(("", "", random_path(rng))),
        limit=rng.choice((1, 2, 3, 7, 1000)),
        rows_max=rng.choice((1, 20, 100_000)),
        rows_first=rng.choice((1, 3, 1000)),
    )
