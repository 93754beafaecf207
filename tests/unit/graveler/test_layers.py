"""Every way of reading a branch returns the newest of the rows in several layers.

There is a path for each combination of what a commit, two sealed tokens and the staging token can hold: no row, an
entry, or a tombstone. The name of a path gives its expected value.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from lake import Lake, entry

from tarn.core.branch import Branch, seal
from tarn.core.condition import WriteCondition
from tarn.core.entry import TOMBSTONE, etag_of, pack, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Group
from tarn_graveler.branch.handle import BranchHandle, claims_nothing

# For each layer, oldest first: "-" no row, "e" an entry, "m" a tombstone.
PATHS = ["".join(each) for each in product("-e", "-em", "-em", "-em")]
LAYERS = 4


def size_of(path: str, layer: int) -> int:
    """Returns the size of the entry in a layer; it identifies the entry."""
    return 100 * (PATHS.index(path) + 1) + layer


def newest(path: str, layers: int = LAYERS) -> int | None:
    """Returns the value of a path if only its oldest layers exist."""
    for layer in reversed(range(layers)):
        if path[layer] != "-":
            return size_of(path, layer) if path[layer] == "e" else None
    return None


async def write_layer(lake: Lake, layer: int) -> None:
    """Writes the rows of a token, including tombstones that hide nothing."""
    groups = [
        Group(path_key(path), ((path_key(path), TOMBSTONE if sort == "m" else named(path, layer)),))
        for path in PATHS
        if (sort := path[layer]) != "-"
    ]
    assert not any(await lake.kv.set_many(await lake.staging_rows(), groups))


def named(path: str, layer: int) -> bytes:
    """Returns an entry with a unique ETag."""
    size = size_of(path, layer)
    return pack(replace(unpack(entry(size)), md5=size.to_bytes(16)))


async def sealed(lake: Lake) -> Branch:
    branches = lake.graveler.branches
    change = await BranchHandle(branches, lake.main).change(
        lambda now, op_id: seal(now, branches.new_token(), op_id), claims_nothing
    )
    return change.written


@pytest.fixture
async def layered(lake: Lake) -> Lake:
    """A branch whose four layers hold every combination."""
    await write_layer(lake, 0)
    await lake.commit()
    for layer in (1, 2):
        await write_layer(lake, layer)
        await sealed(lake)
    await write_layer(lake, 3)
    assert len((await record(lake)).tokens) == 3
    return lake


async def record(lake: Lake) -> Branch:
    return (await lake.graveler.branches.fresh(lake.main)).branch


async def listing(lake: Lake, ref: str = "main", *, limit: int = 1000) -> dict[str, int]:
    """Reads the complete listing of a ref, page by page."""
    found: dict[str, int] = {}
    after: str | None = ""
    while after is not None:
        page = await lake.graveler.reading.page(
            lake.repository, ref, PageRequest(after=after, limit=limit)
        )
        found |= {
            path: unpack(packed).size for path, packed in zip(page.paths, page.entries, strict=True)
        }
        after = page.next_after
    return found


EXPECTED = {path: size for path in PATHS if (size := newest(path)) is not None}


async def test_a_lookup_finds_the_newest_row(layered: Lake) -> None:
    assert {path: await layered.get(path) for path in PATHS} == {
        path: newest(path) for path in PATHS
    }


@pytest.mark.parametrize("limit", [3, 1000])
async def test_a_listing_shows_the_newest_rows(layered: Lake, limit: int) -> None:
    assert await listing(layered, limit=limit) == EXPECTED


async def test_uncommitted_differences_are_those_of_the_newest_rows(layered: Lake) -> None:
    page = await layered.graveler.diffing.uncommitted(layered.main, prefix="", after="", limit=1000)
    found = {
        path: (unpack(left).size if left else None, unpack(right).size if right else None)
        for path, left, right in zip(page.paths, page.lefts, page.rights, strict=True)
    }
    assert found == {
        path: (newest(path, 1), newest(path)) for path in PATHS if newest(path, 1) != newest(path)
    }


async def test_a_commit_takes_the_newest_rows(layered: Lake) -> None:
    made = await layered.commit()
    assert await listing(layered, made.commit_id) == EXPECTED
    assert await listing(layered) == EXPECTED
    assert await layered.get("-me-") == EXPECTED["-me-"]


async def test_a_condition_is_judged_by_the_newest_row(layered: Lake) -> None:
    for number, path in enumerate(PATHS):
        new = pack(replace(unpack(entry(number)), operation_id=f"op-{path}"))
        holds = newest(path)
        if holds is None:
            right, wrong = WriteCondition(if_none_match=True), WriteCondition(if_match="*")
        else:
            etag = etag_of(named(path, holds % 100))
            right, wrong = WriteCondition(if_match=etag), WriteCondition(if_none_match=True)
        with pytest.raises(TarnError) as raised:
            await stage_if(layered, path, new, wrong)
        assert raised.value.reason in (Reason.PRECONDITION_FAILED, Reason.ENTRY_NOT_FOUND), path
        await stage_if(layered, path, new, right)
        assert await layered.get(path) == number, path


async def stage_if(lake: Lake, path: str, packed: bytes, condition: WriteCondition) -> None:
    conditional = lake.graveler.conditional
    await conditional.stage(lake.main, path, packed, condition)


async def test_deleted_paths_hold_nothing_whatever_layer_they_were_in(layered: Lake) -> None:
    assert await layered.delete(*PATHS) == [None] * len(PATHS)
    assert await listing(layered) == {}
    made = await layered.commit()
    assert await listing(layered, made.commit_id) == {}


async def test_the_compacted_metarange_is_read_instead_of_the_commit(lake: Lake) -> None:
    await lake.put("x", 1)
    first = await lake.commit()
    await lake.put("x", 2)
    await lake.put("y", 2)
    second = await lake.commit()
    compacted = second.commit.metarange_id

    def compact(now: Branch, op_id: bytes) -> Branch:
        return replace(
            now,
            commit_id=first.commit_id,
            compacted_metarange_id=compacted,
            recent_op_ids=(op_id, *now.recent_op_ids),
        )

    await BranchHandle(lake.graveler.branches, lake.main).change(compact, claims_nothing)
    assert await lake.get("x") == 2
    assert await listing(lake) == {"x": 2, "y": 2}
    assert await lake.delete("y") == [None]
    assert await listing(lake) == {"x": 2}
    made = await lake.commit()
    assert await listing(lake, made.commit_id) == {"x": 2}
    assert (await record(lake)).compacted_metarange_id is None
