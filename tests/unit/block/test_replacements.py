"""Entries that replace an erased one of the commit, in builds and differences, against a model by definition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.clock import ManualClock
from tests.support.listings import Listing, applied, changes_between, run_of, staged

from tarn.block.committed import Committed
from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.block.rangecache import RangeCache
from tarn.core.entry import TOMBSTONE, Entry, address_of, identity_of, pack, unpack
from tarn.core.ids import MetarangeId
from tarn.core.listing.breaks import BreakRule

SPACE = "mem://lake"
RULES = st.builds(
    BreakRule,
    rows_mean=st.sampled_from([2, 4, 1 << 40]),
    rows_max=st.sampled_from([3, 7, 1000]),
    bytes_max=st.just(1 << 30),
)


def address(number: int) -> bytes:
    return number.to_bytes(16, "big")


def packed(made: tuple[int, int, int]) -> bytes:
    """An entry of a content, at an address that it has alone; it may replace another one, or be external."""
    content, number, replaced = made
    external = "s3://elsewhere/x" if number == 0 else ""
    old = address(replaced) if replaced else b""
    return pack(
        Entry(
            content,
            number,
            address(number),
            bytes([content]) * 16,
            content_type="text/plain"
            if content
            else "",  # without: a tombstone with an address is alike
            replaced_address=old,
            external_address=external,
        )
    )


# Few paths and two contents, so that most paths get an object that they have; one address has one content.
PATHS = ["a\0", "a/", "é" * 512, "\U0010ffff", *(f"k{number:03}" for number in range(12))]
MADE = st.tuples(st.integers(0, 1), st.integers(0, 4)).map(
    lambda made: (made[0], 2 * made[1] + made[0] if made[1] else 0)
)
REPLACED = st.sampled_from([0, 0, 40, 41])
COMMITTED = st.builds(lambda made, old: packed((*made, old)), MADE, REPLACED)
ROW = MADE.map(lambda made: packed((*made, 0)))


def listings_of(*entries: st.SearchStrategy[bytes]) -> st.SearchStrategy[Listing]:
    """Listings that have most of the paths: hypothesis would make small ones."""
    size = len(PATHS)
    columns = st.lists(st.one_of(st.none(), *entries), min_size=size, max_size=size)
    return columns.map(
        lambda column: {path: each for path, each in zip(PATHS, column, strict=True) if each}
    )


COMMITS = listings_of(COMMITTED, COMMITTED, COMMITTED)
CHANGES = listings_of(st.just(TOMBSTONE), ROW, ROW, ROW)
ALL = frozenset(map(address, range(1, 42)))
SOME = st.frozensets(st.sampled_from(sorted(ALL)))
ERASED: st.SearchStrategy[frozenset[bytes]] = st.one_of(
    st.just(frozenset[bytes]()), SOME, SOME.map(lambda some: ALL - some)
)


class Erased:
    """Implements `ErasedRows`."""

    def __init__(self, addresses: AbstractSet[bytes]) -> None:
        self.addresses = addresses
        self.reads = 0

    async def any(self) -> bool:
        return bool(self.addresses)

    async def among(self, addresses: Sequence[bytes]) -> AbstractSet[bytes]:
        assert bytes(16) not in addresses, "an external entry has no address to look up"
        self.reads += 1
        return self.addresses & set(addresses)


@contextmanager
def opened(rule: BreakRule) -> Iterator[Committed]:
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as executor:
        store = MemBlockStore(ManualClock())
        yield Committed(store, RangeCache(Path(folder), executor=executor), rule=rule)


async def content(lake: Committed, listing: MetarangeId) -> Listing:
    return dict(zip(*await lake.page(SPACE, listing, "", 10_000), strict=True))


def marked(head: Listing, changes: Listing, erased: AbstractSet[bytes]) -> Listing:
    """The staged rows with the addresses that they replace, by definition."""
    if not erased:
        return changes
    return {
        path: row if row == TOMBSTONE or path not in head else replacement(row, head[path], erased)
        for path, row in changes.items()
    }


def replacement(row: bytes, committed: bytes, erased: AbstractSet[bytes]) -> bytes:
    new, old = unpack(row), unpack(committed)
    like = pack(replace(new, replaced_address=old.replaced_address))
    if identity_of(like) != identity_of(committed):
        return row
    is_gone = old.address in erased and address_of(row) != old.address
    return pack(replace(new, replaced_address=old.address)) if is_gone else like


FEW = {f"k{number:03}": packed((1, 4, 0)) for number in range(30)}
AGAIN = {path: packed((1, 7, 0)) for path in FEW}


@given(RULES, COMMITS, CHANGES, ERASED, st.sampled_from([1, 3, 1000]))
@example(BreakRule(rows_mean=2, rows_max=3), FEW, AGAIN, {address(4)}, 1000)
async def test_staged_rows_replace_erased_entries(
    rule: BreakRule, head: Listing, changes: Listing, gone: AbstractSet[bytes], batch_rows: int
) -> None:
    """In a build over the commit, and in the difference to it, for all ranges and batches."""
    with opened(rule) as lake:
        commit = (await lake.build(SPACE, None, [staged(head)])).metarange_id
        layers = [staged(changes, batch_rows)]
        built = await lake.build(SPACE, commit, layers, erased=Erased(gone))
        wanted = applied(head, marked(head, changes, gone))
        assert await content(lake, built.metarange_id) == wanted
        page = await lake.differences.staged_page(
            SPACE, commit, run_of(changes).batch(), Erased(gone)
        )
        found = [
            (path, left or b"", right or b"")
            for path, left, right in zip(page.paths, page.lefts, page.rights, strict=True)
        ]
        assert found == changes_between(head, wanted)


@given(RULES, COMMITS, CHANGES, CHANGES, ERASED, st.booleans())
async def test_staged_rows_over_a_compacted_listing_replace_erased_entries_of_the_commit(
    rule: BreakRule,
    head: Listing,
    compacted: Listing,
    changes: Listing,
    gone: AbstractSet[bytes],
    finely: bool,
) -> None:
    with opened(rule) as lake:
        commit = (await lake.build(SPACE, None, [staged(head)])).metarange_id
        erased = Erased(gone)
        first = await lake.build(SPACE, commit, [staged(compacted)], finely=True, erased=erased)
        over = None if first.metarange_id == commit else commit
        built = await lake.build(
            SPACE, first.metarange_id, [staged(changes)], head=over, finely=finely, erased=erased
        )
        wanted = applied(head, marked(head, compacted, gone))
        for path, row in marked(head, changes, gone).items():
            if row == TOMBSTONE:
                wanted.pop(path, None)
            elif path in head and identity_of(row) == identity_of(head[path]):
                wanted[path] = head[path]
            else:
                wanted[path] = row
        assert await content(lake, built.metarange_id) == wanted


class SlowStore(MemBlockStore):
    """Counts the reads that are under way at the same time."""

    now = most = 0

    async def read(self, key: BlockKey, start: int = 0, length: int | None = None) -> bytes:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return await super().read(key, start, length)


async def test_few_ranges_of_the_commit_are_read_at_the_same_time(tmp_path: Path) -> None:
    store = SlowStore(ManualClock())
    rule = BreakRule(rows_mean=2, rows_max=3)
    writer = Committed(store, RangeCache(tmp_path / "writer"), rule=rule)
    commit = (await writer.build(SPACE, None, [staged(FEW)])).metarange_id
    reader = Committed(store, RangeCache(tmp_path / "reader"), rule=rule)
    store.most = 0
    page = await reader.differences.staged_page(
        SPACE, commit, run_of(AGAIN).batch(), Erased({address(4)})
    )
    assert page.paths == sorted(FEW)
    assert 1 < store.most <= 4


async def test_a_repository_without_erasures_looks_up_nothing() -> None:
    with opened(BreakRule(rows_mean=2, rows_max=3)) as lake:
        commit = (await lake.build(SPACE, None, [staged(FEW)])).metarange_id
        erased = Erased(set())
        built = await lake.build(SPACE, commit, [staged(AGAIN)], erased=erased)
        assert built.metarange_id == commit
        assert erased.reads == 0
