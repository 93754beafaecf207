"""Resets of a prefix or of one object, and compacted branches (docs/design/protocol.md, rules 6 and 10)."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from lake import ADDRESS, Lake, entry
from lake_merges import (
    NEW,
    branch_with,
    head,
    merge,
    mine,
    record,
    refused,
    uncommitted,
)
from lake_parts import failing, listing, reset, reset_path

from tarn.core.branch import Branch
from tarn.core.entry import TOMBSTONE, Entry, pack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import MetarangeId
from tarn.core.listing.diff import DiffPage
from tarn_graveler.branch.handle import BranchHandle, claims_nothing
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.branch.uncommitted import _joined

PATHS = ["a", "b/", "b/1", "b/1/x", "b/2", "b0", "c/é/1", "c/é/2", "c/ê", "d", "\U0010ffff/1"]
PREFIXES = ["b/", "b", "b/1", "c/é", "c/", "\U0010ffff", "zz", "a"]


async def test_a_reset_of_a_prefix_discards_its_changes_and_keeps_the_others(lake: Lake) -> None:
    for path in ("raw/1", "raw/2", "rest"):
        await lake.put(path, 1)
    made = await lake.commit()
    await lake.put("raw/1", 2)
    await lake.delete("raw/2")
    await lake.put("raw/3", 2)
    await lake.put("raw0", 2)
    await lake.delete("rest")
    await reset(lake, "raw/")
    assert await listing(lake) == {"raw/1": 1, "raw/2": 1, "raw0": 2}
    assert await uncommitted(lake) == ["raw0", "rest"]
    assert await head(lake) == made.commit_id
    await lake.drop_everything_removed()
    assert await listing(lake) == {"raw/1": 1, "raw/2": 1, "raw0": 2}


async def test_a_reset_of_a_path_leaves_paths_that_begin_with_it(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("a/b", 1)
    await lake.put("ab", 1)
    await reset_path(lake, "a")
    assert await listing(lake) == {"a/b": 1, "ab": 1}


async def test_a_reset_that_leaves_nothing_uncommitted_sets_no_compacted_listing(
    lake: Lake,
) -> None:
    await lake.put("raw/1", 1)
    await lake.commit()
    await lake.put("raw/1", 2)
    await lake.put("raw/2", 2)
    await reset(lake, "raw/")
    assert (await record(lake)).compacted_metarange_id is None
    assert await listing(lake) == {"raw/1": 1}


async def test_a_reset_of_what_has_no_changes_leaves_the_record_as_it_is(lake: Lake) -> None:
    await lake.put("rest", 1)
    before = await record(lake)
    await reset(lake, "raw/")
    assert await record(lake) == before
    await lake.put("raw/1", 1)
    await reset(lake, "raw/")
    before = await record(lake)
    await reset(lake, "raw/")
    assert await record(lake) == before


async def test_the_commits_content_comes_back_where_an_earlier_reset_had_folded_changes(
    lake: Lake,
) -> None:
    """The second prefix has changes in the compacted listing only: an update, a removal and a new path."""
    for path in ("x/1", "x/2", "y"):
        await lake.put(path, 1)
    await lake.commit()
    await lake.put("x/1", 2)
    await lake.delete("x/2")
    await lake.put("x/3", 2)
    await lake.put("y", 2)
    await reset(lake, "y")
    assert await listing(lake) == {"x/1": 2, "x/3": 2, "y": 1}
    await lake.put("z", 3)
    await reset(lake, "x/")
    assert await listing(lake) == {"x/1": 1, "x/2": 1, "y": 1, "z": 3}
    assert await uncommitted(lake) == ["z"]
    await reset_path(lake, "z")
    assert (await record(lake)).compacted_metarange_id is None


async def test_a_commit_after_a_reset_holds_the_rest_and_counts_it_against_its_parent(
    lake: Lake,
) -> None:
    for path in ("a", "b", "c", "raw/1"):
        await lake.put(path, 1)
    await lake.commit()
    await lake.put("a", 2)
    await lake.delete("b")
    await lake.put("new", 2)
    await lake.put("raw/1", 2)
    await reset(lake, "raw/")
    await lake.put("new", 3)
    made = await lake.commit()
    assert await listing(lake, "main@") == {"a": 2, "c": 1, "new": 3, "raw/1": 1}
    assert (made.built.added, made.built.updated, made.built.removed) == (1, 1, 1)
    assert (await record(lake)).compacted_metarange_id is None
    assert await uncommitted(lake) == []
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT


async def test_a_commit_of_a_compacted_listing_alone_adds_no_layer_when_it_fails(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await lake.put("a", 1)
    await lake.put("raw/1", 1)
    await reset(lake, "raw/")
    layers = len((await record(lake)).tokens)
    add = lake.graveler.commits.add
    monkeypatch.setattr(lake.graveler.commits, "add", failing)
    for _ in range(3):
        assert await refused(lake.commit()) is Reason.UNAVAILABLE
    assert len((await record(lake)).tokens) == layers
    monkeypatch.setattr(lake.graveler.commits, "add", add)
    await lake.commit()
    assert await listing(lake, "main@") == {"a": 1}


async def compact_to(lake: Lake, listing: MetarangeId) -> None:
    """Leaves the record as a compaction would: no sealed token over the compacted listing."""

    def compact(now: Branch, op_id: bytes) -> Branch:
        return replace(
            now,
            sealed=(),
            compacted_metarange_id=listing,
            recent_op_ids=(op_id, *now.recent_op_ids),
        )

    await BranchHandle(lake.graveler.branches, lake.main).change(compact, claims_nothing)


async def test_a_compacted_listing_without_sealed_tokens_is_dirty_and_is_committed(
    lake: Lake,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = await branch_with(lake, {"s": 1})
    await lake.put("a", 1)
    made = await lake.commit()
    await lake.put("raw/1", 1)
    await lake.put("a", 2)
    await reset(lake, "raw/")
    folded = (await record(lake)).compacted_metarange_id
    assert folded is not None
    await compact_to(lake, folded)
    assert await uncommitted(lake) == ["a"]
    assert await refused(merge(lake, source)) is Reason.BRANCH_DIRTY
    add = lake.graveler.commits.add
    monkeypatch.setattr(lake.graveler.commits, "add", failing)
    before = (await record(lake)).tokens
    assert await refused(lake.commit()) is Reason.UNAVAILABLE
    assert (await record(lake)).tokens == before, "an empty token is not sealed"
    monkeypatch.setattr(lake.graveler.commits, "add", add)
    await lake.commit()
    assert await listing(lake, "main@") == {"a": 2}
    now = (await lake.graveler.commits.get(lake.repository, await head(lake))).metarange_id
    await compact_to(lake, now)
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT
    assert (await record(lake)).compacted_metarange_id is None
    assert made.commit_id != await head(lake)


def test_pages_of_two_layers_are_joined_up_to_where_both_are_known() -> None:
    beneath = DiffPage(["a", "c", "e"], [b"", b"1", b"1"], [b"2", b"", b"2"], "e")
    joined = _joined({"c": b"3", "f": b"3"}, None, beneath, 9)
    assert joined == (["a", "c", "e"], [b"2", b"3", b"2"], "e")
    assert _joined({"b": b"3"}, "b", beneath, 9) == (["a", "b"], [b"2", b"3"], "b")
    ended = replace(beneath, next_after=None)
    assert _joined({"b": b"3"}, None, ended, 2) == (["a", "b"], [b"2", b"3"], "b")
    everything = _joined({"b": b"3"}, None, ended, 4)
    assert everything == (["a", "b", "c", "e"], [b"2", b"3", TOMBSTONE, b"2"], None)


def again(size: int) -> bytes:
    """The same object as `entry(size)`, uploaded once more: at another address, at another time."""
    return pack(Entry(size, 99, ADDRESS, bytes(16)))


async def test_changes_that_are_undone_over_a_compacted_listing_leave_nothing_to_commit(
    lake: Lake,
) -> None:
    await lake.put("a", 1)
    await lake.commit()
    await lake.put("a", 2)
    await lake.put("raw/1", 1)
    await reset(lake, "raw/")
    assert (await record(lake)).compacted_metarange_id is not None
    await lake.graveler.staging.stage(lake.main, "a", again(1))
    assert await uncommitted(lake) == []
    assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT
    assert (await record(lake)).compacted_metarange_id is None
    assert await lake.get("a") == 1, "the update must not come back with the tokens that undid it"


async def test_a_reset_of_all_and_a_forced_move_discard_the_compacted_listing(lake: Lake) -> None:
    made = await lake.commit(allow_empty=True)
    for number in range(2):
        await lake.put("a", 1)
        await lake.put("raw/1", 1)
        await reset(lake, "raw/")
        assert await listing(lake) == {"a": 1}
        if number:
            await lake.graveler.moves.reset(lake.main)
        else:
            new = NewHead(made.commit_id, made.commit)
            await lake.graveler.moves.move_to(lake.main, new, made.commit_id, force=True)
        assert await listing(lake) == {}
        assert (await record(lake)).compacted_metarange_id is None


async def test_a_compacted_listing_refuses_a_merge_until_its_changes_are_reset(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.commit()
    source = await branch_with(lake, {"s": 1})
    await lake.put("a", 2)
    await lake.put("raw/1", 1)
    await reset(lake, "raw/")
    with pytest.raises(TarnError, match="uncommitted changes: a") as caught:
        await merge(lake, source)
    assert caught.value.reason is Reason.BRANCH_DIRTY
    await reset_path(lake, "a")
    await merge(lake, source)
    assert await listing(lake) == {"a": 1, "s": 1}
    assert (await record(lake)).compacted_metarange_id is None


async def test_a_branch_from_a_compacted_branch_starts_at_its_commit(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("raw/1", 1)
    await reset(lake, "raw/")
    await branch_with(lake, {"b": 1})
    assert await listing(lake, "side") == {"b": 1}


async def test_deletes_and_conditions_read_the_compacted_listing(lake: Lake) -> None:
    await lake.put("a", 1)
    await lake.put("b", 1)
    await lake.commit()
    await lake.delete("a")
    await lake.put("raw/1", 1)
    await reset(lake, "raw/")
    conditional = lake.graveler.conditional
    await conditional.stage(lake.main, "a", mine(3, "one"), NEW)
    assert await refused(conditional.stage(lake.main, "b", mine(3, "two"), NEW)) is (
        Reason.PRECONDITION_FAILED
    )
    await lake.delete("b")
    assert await listing(lake) == {"a": 3}


# ---- against a dict


class Plain:
    """The content that the branch must show, as two dicts."""

    def __init__(self) -> None:
        self.head: dict[str, int] = {}
        self.now: dict[str, int] = {}

    def reset(self, is_in: Callable[[str], bool]) -> None:
        kept = {path: size for path, size in self.now.items() if not is_in(path)}
        self.now = kept | {path: size for path, size in self.head.items() if is_in(path)}

    @property
    def changed(self) -> list[str]:
        return sorted(path for path in PATHS if self.now.get(path) != self.head.get(path))


async def change(lake: Lake, plain: Plain, rng: random.Random) -> None:
    """One change by chance, of the branch and of the dicts."""
    path, size = rng.choice(PATHS), rng.randrange(4)
    what = rng.choices(
        ["put", "delete", "path", "prefix", "commit", "all"], [8, 4, 2, 3, 1.5, 0.3]
    )[0]
    if what == "put":
        packed = rng.choice([entry, again])(size)
        await lake.graveler.staging.stage(lake.main, path, packed)
        plain.now[path] = size
    elif what == "delete":
        await lake.delete(path)
        plain.now.pop(path, None)
    elif what == "path":
        await reset_path(lake, path)
        plain.reset(lambda each: each == path)
    elif what == "prefix":
        prefix = rng.choice(PREFIXES)
        await reset(lake, prefix)
        plain.reset(lambda each: each.startswith(prefix))
    elif what == "all":
        await lake.graveler.moves.reset(lake.main)
        plain.now = dict(plain.head)
    elif plain.changed:
        counts = (await lake.commit()).built
        added = plain.now.keys() - plain.head.keys()
        removed = plain.head.keys() - plain.now.keys()
        updated = len(plain.changed) - len(added) - len(removed)
        assert (counts.added, counts.updated, counts.removed) == (len(added), updated, len(removed))
        plain.head = dict(plain.now)
    else:
        assert await refused(lake.commit()) is Reason.NOTHING_TO_COMMIT


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
async def test_any_order_of_changes_resets_and_commits_shows_what_two_dicts_show(
    lake: Lake, seed: int
) -> None:
    rng, plain = random.Random(seed), Plain()
    for _ in range(40):
        await change(lake, plain, rng)
        assert await listing(lake) == dict(sorted(plain.now.items()))
        assert await uncommitted(lake) == plain.changed
        first = await lake.graveler.diffing._changes.first(lake.main, await record(lake), 100)
        assert set(first) <= set(plain.changed) | set(PATHS)
        path = rng.choice(PATHS)
        assert await lake.get(path) == plain.now.get(path)
    await lake.drop_everything_removed()
    assert await listing(lake) == dict(sorted(plain.now.items()))
    assert await listing(lake, "main@") == dict(sorted(plain.head.items()))


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
async def test_pages_of_uncommitted_changes_over_a_compacted_listing_leave_nothing_out(
    lake: Lake, limit: int
) -> None:
    rng = random.Random(limit)
    for _ in range(12):
        plain = Plain()
        await lake.graveler.moves.reset(lake.main)
        for _ in range(10):
            await lake.put(path := rng.choice(PATHS), size := rng.randrange(4))
            plain.now[path] = size
        await lake.put("raw", 1)
        await reset_path(lake, "raw")
        for _ in range(4):
            await lake.delete(path := rng.choice(PATHS))
            plain.now.pop(path, None)
        found: list[str] = []
        after: str | None = ""
        while after is not None:
            page = await lake.graveler.diffing.uncommitted(
                lake.main, prefix="", after=after, limit=limit
            )
            assert len(page.paths) <= limit
            found += page.paths
            after = page.next_after
        assert found == plain.changed
