"""A replica that deletes objects knows what the tombstones hide, before it lists the branch for the first time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from lake import Lake, entry
from lake_merges import record

from tarn.core.entry import unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Group, Partition, Row, SiftedPage

pytestmark = pytest.mark.slow

DEAD = 1200
KEPT = 50
BATCH = 300


class Rows:
    """Counts the staged rows that listings read, and which objects they return."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lake, self.rows = lake, 0
        scan, scan_without = lake.kv.scan, lake.kv.scan_without

        async def scanned(*args: Any) -> Sequence[Row]:
            rows = await scan(*args)
            self.rows += len(rows)
            return rows

        async def sifted(*args: Any) -> SiftedPage:
            page = await scan_without(*args)
            self.rows += len(page.rows)
            return page

        monkeypatch.setattr(lake.kv, "scan", scanned)
        monkeypatch.setattr(lake.kv, "scan_without", sifted)

    async def of_listing(self, expected: dict[str, int]) -> int:
        """Lists the whole branch; returns how many staged rows were read."""
        self.rows, after = 0, ""
        found: dict[str, int] = {}
        while True:
            request = PageRequest(after=after, limit=1000)
            page = await self.lake.graveler.reading.page(self.lake.repository, "main", request)
            found |= {
                path: unpack(packed).size
                for path, packed in zip(page.paths, page.entries, strict=True)
            }
            if page.next_after is None:
                break
            after = page.next_after
        assert found == expected
        return self.rows


def named(count: int) -> list[str]:
    return [f"d/{number:05}" for number in range(count)]


async def committed(lake: Lake) -> dict[str, int]:
    """Commits objects, of which the first ones will be deleted; returns the others."""
    token = await lake.staging_rows()
    names = named(DEAD + KEPT)
    groups = [Group(path_key(path), ((path_key(path), entry(1)),)) for path in names]
    assert not any(await lake.kv.set_many(token, groups))
    await lake.commit()
    return dict.fromkeys(names[DEAD:], 1)


async def delete(lake: Lake, names: list[str], batch: int = BATCH) -> None:
    for start in range(0, len(names), batch):
        assert not any(await lake.delete(*reversed(names[start : start + batch])))


@pytest.fixture
async def wide(lake: Lake) -> dict[str, int]:
    return await committed(lake)


async def test_the_first_listing_reads_no_tombstone_of_the_replicas_own_deletes(
    lake: Lake, other: Lake, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await delete(lake, named(DEAD))
    rows = Rows(lake, monkeypatch)
    assert await rows.of_listing(wide) == 0
    elsewhere = Rows(other, monkeypatch)
    assert await elsewhere.of_listing(wide) >= DEAD


async def test_an_object_that_is_written_again_is_listed(
    lake: Lake, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone of a noted row was overwritten, here and by another replica's writer."""
    await delete(lake, named(DEAD))
    await lake.put("d/00007", 7)
    await lake.put("d/00007x", 8)
    rows = Rows(lake, monkeypatch)
    assert await rows.of_listing({"d/00007": 7, "d/00007x": 8} | wide) == 2


async def test_a_tombstone_that_was_not_written_hides_nothing(
    lake: Lake, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store refuses some rows of a batch, or does not say whether it took them."""
    set_many = lake.kv.set_many
    refused = {path_key(f"d/{number:05}"): number for number in (3, 250, 251, 700)}

    async def some(partition: Partition, groups: Sequence[Group]) -> Sequence[Exception | None]:
        taken = [group for group in groups if group.anchor not in refused]
        errors = iter(await set_many(partition, taken))
        text = "the store is overloaded"
        return [
            TarnError(Kind.UNAVAILABLE, Reason.OVERLOADED, text)
            if group.anchor in refused
            else next(errors)
            for group in groups
        ]

    monkeypatch.setattr(lake.kv, "set_many", some)
    failed = 0
    for start in range(0, DEAD, BATCH):
        failed += len([e for e in await lake.delete(*named(DEAD)[start : start + BATCH]) if e])
    assert failed == len(refused)
    kept = {f"d/{number:05}": 1 for number in refused.values()}
    await Rows(lake, monkeypatch).of_listing(kept | wide)


async def test_what_a_discarded_or_folded_token_hid_is_not_hidden_any_more(
    lake: Lake, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await delete(lake, named(DEAD))
    await lake.graveler.moves.reset(lake.main)
    everything = dict.fromkeys(named(DEAD), 1) | wide
    rows = Rows(lake, monkeypatch)
    assert await rows.of_listing(everything) == 0
    await delete(lake, named(DEAD))
    await lake.graveler.compacting.compact(lake.main)
    assert await rows.of_listing(wide) == 0
    await lake.put("d/00001", 5)
    assert await rows.of_listing({"d/00001": 5} | wide) == 1


async def test_objects_that_are_staged_only_are_not_noted_as_committed_ones(
    lake: Lake, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie between the committed ones. A batch deletes both kinds, and paths that never existed."""
    for number in range(0, DEAD, 6):
        await lake.put(f"d/{number:05}x", 2)
    batch = [name for path in named(DEAD) for name in (path, f"{path}x")]
    await delete(lake, batch, 400)
    assert await Rows(lake, monkeypatch).of_listing(wide) <= 2 * DEAD // 6
    await lake.graveler.moves.reset(lake.main)
    await delete(lake, [name for name in batch if name.endswith("x")])
    assert await Rows(lake, monkeypatch).of_listing(dict.fromkeys(named(DEAD), 1) | wide) == 0


async def test_a_few_deletes_are_not_noted(
    lake: Lake, wide: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note allocates memory for its whole range."""
    await delete(lake, named(DEAD), 10)
    assert (await record(lake)).sealed == ()
    assert await Rows(lake, monkeypatch).of_listing(wide) >= DEAD
