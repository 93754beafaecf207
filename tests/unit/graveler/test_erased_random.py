"""Random writes, erasures and moves of rows on one branch: what is written after an erasure stays readable."""

from __future__ import annotations

import random

import pytest
from lake import Lake
from lake_erasures import Writer
from lake_merges import NEW, refused, uncommitted
from lake_parts import reset_path

from tarn.core.condition import WriteCondition
from tarn.core.entry import Entry, address_of, operation_of, pack
from tarn.core.errors import Reason, TarnError
from tarn_graveler.compaction.discarding import Discarding

SEEDS = range(40)
STEPS = 40
PATHS = ("p", "q")
STEP_NAMES = (
    *("put",) * 5,
    *("again",) * 2,
    *("commit",) * 2,
    *("erase",) * 2,
    *("condition", "delete", "compact", "reset", "discard"),
)


class Play:
    """One run on one branch.

    Attributes:
        wanted: what must be readable: the paths whose last write came after all erasures. None: the path is deleted.
        last: the entry that was last written at a path.
    """

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.random = random.Random(seed)
        self.writer = Writer(lake)
        self.erased: set[bytes] = set()
        self.wanted: dict[str, bytes | None] = {}
        self.last: dict[str, bytes] = {}
        self.operations = 0

    def packed(self, path: str, content: int = 7, operation: str = "") -> bytes:
        self.last[path] = pack(
            Entry(content, 0, self.writer.address(), path.encode() * 16, operation_id=operation)
        )
        self.wanted[path] = address_of(self.last[path])
        return self.last[path]

    async def check(self, ref: str) -> None:
        for path, wanted in self.wanted.items():
            found = await self.writer.at(ref, path)
            assert (found is None) == (wanted is None)
            assert found not in self.erased

    async def put(self, path: str) -> None:
        packed = self.packed(path, self.random.choice([7, 7, 7, 8]))
        await self.lake.graveler.staging.stage(self.lake.main, path, packed)

    async def condition(self, path: str) -> None:
        there = await self.writer.at("main", path)
        condition = NEW if there is None else WriteCondition(if_match="*")
        self.operations += 1
        packed = self.packed(path, operation=f"o{self.operations}")
        staged = await self.lake.graveler.conditional.stage(self.lake.main, path, packed, condition)
        assert staged is False

    async def again(self, path: str) -> None:
        """A write whose answer was lost is sent again: it changes nothing, and is not taken for another one."""
        packed = self.last.get(path)
        if packed is None or await self.writer.at("main", path) != address_of(packed):
            return
        before = await uncommitted(self.lake)
        if operation_of(packed):
            try:
                staged = await self.lake.graveler.conditional.stage(
                    self.lake.main, path, packed, NEW
                )
                assert staged is False
            except TarnError as error:
                if error.reason is not Reason.OUTCOME_UNKNOWN:  # unknown after a reset
                    raise
        else:
            await self.lake.graveler.staging.stage(self.lake.main, path, packed)
        assert await uncommitted(self.lake) == before

    async def delete(self, path: str) -> None:
        await self.lake.delete(path)
        self.wanted[path] = None

    async def commit(self, _: str) -> None:
        if await uncommitted(self.lake):
            await self.lake.commit()
        else:
            assert await refused(self.lake.commit()) is Reason.NOTHING_TO_COMMIT
        assert await uncommitted(self.lake) == []
        await self.check("main@")

    async def compact(self, _: str) -> None:
        before = await uncommitted(self.lake)
        await self.writer.compact()
        assert await uncommitted(self.lake) == before

    async def erase(self, path: str) -> None:
        """Erases what the commit has, and sometimes what is uncommitted, too."""
        found = [await self.writer.at("main@", path)]
        if self.random.random() < 0.3:
            found.append(await self.writer.at("main", path))
        addresses = {each for each in found if each is not None}
        self.erased |= addresses
        await self.writer.erase(*addresses)
        self.wanted = {path: each for path, each in self.wanted.items() if each is None}

    async def reset(self, path: str) -> None:
        await reset_path(self.lake, path)
        self.wanted.pop(path, None)

    async def discard(self, path: str) -> None:
        found = await self.writer.at("main", path)
        if found is None or found not in self.erased:
            return
        graveler = self.lake.graveler
        discarding = Discarding(graveler.branches, graveler.layers, graveler.part_resets)
        await discarding.discard(self.lake.main, [(path, found)])
        assert await self.writer.at("main", path) == await self.writer.at("main@", path)
        self.wanted.pop(path, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_written_after_an_erasure_stays_readable(lake: Lake, seed: int) -> None:
    play = Play(lake, seed)
    for _ in range(STEPS):
        step = getattr(play, play.random.choice(STEP_NAMES))
        await step(play.random.choice(PATHS))
        await play.check("main")
