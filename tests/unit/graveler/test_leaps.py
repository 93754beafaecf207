"""Listings that leap over hidden rows show what a dict shows; they read few of the hidden rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from lake import Lake, Running, entry, reached
from leap_lab import Laid, Rows, random_path, random_request, random_rows

from tarn.core.entry import TOMBSTONE
from tarn.core.listing.pages import PageRequest
from tarn.kv.keys import path_key
from tarn.kv.port import Partition, Row, RowFilter, SiftedPage, Versioned
from tarn_graveler.branch.leaps import LEAP_ROWS_MIN

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seeds", [range(at, at + 40) for at in range(0, 200, 40)])
async def test_every_listing_is_that_of_the_plain_merge(lake: Lake, seeds: range) -> None:
    """Layers, tombstones, prefixes, delimiters, limits and page tokens by chance, and rows written in between."""
    for seed in seeds:
        rng = random.Random(seed)
        paths = sorted({random_path(rng) for _ in range(rng.randrange(150))})
        count = rng.randint(1, 3)
        layers = [random_rows(rng, paths, staged=depth < count) for depth in range(count + 1)]
        laid = Laid(lake, layers, rows_min=rng.choice((1, 1, 5)))
        await laid.write()
        for step in range(6):
            request = random_request(rng)
            assert await laid.listed(request) == laid.expected(request), (seed, step, request)
            more = random_rows(rng, rng.sample(paths, len(paths) // 8), staged=True)
            await laid.stage(more)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaps end after few candidates, ranges and examined rows, so that pages and folders end at their edges."""
    for name, value in (
        ("tarn_graveler.branch.leaps._CANDIDATES_MAX", 3),
        ("tarn_graveler.branch.leaps._BESIDE_MAX", 2),
        ("tarn_graveler.branch.leaps._PAUSE_OFFERS", 1),
        ("tarn_graveler.branch.leaps._COST_ROWS", 5),
        ("tarn.block.uncovered._OPENED_MAX", 2),
        ("tarn.block.uncovered._RANGES_MAX", 3),
        ("tarn.kv.mem._EXAMINED_ROWS", 3),
    ):
        monkeypatch.setattr(name, value)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seeds", [range(at, at + 20) for at in range(0, 60, 20)])
async def test_leaps_that_end_early_lose_and_repeat_nothing(lake: Lake, seeds: range) -> None:
    """Also when the tokens are folded into another listing, and new tokens lie over it."""
    for seed in seeds:
        rng = random.Random(seed)
        paths = sorted({random_path(rng) for _ in range(rng.randrange(100))})
        count = rng.randint(1, 4)
        layers = [random_rows(rng, paths, staged=depth < count) for depth in range(count + 1)]
        laid = Laid(lake, layers, rows_min=rng.choice((1, 1, 3)))
        await laid.write()
        for step in range(6):
            request = random_request(rng)
            assert await laid.listed(request) == laid.expected(request), (seed, step, request)
            more = random_rows(rng, rng.sample(paths, len(paths) // 8), staged=True)
            await laid.stage(more)
            if step == 3:
                await laid.fold(rng.randint(1, count))


class Meddler:
    """Writes rows to the staging token between the reads of a listing."""

    def __init__(self, laid: Laid, rng: random.Random, paths: Sequence[str]) -> None:
        self.laid, self.rng, self.paths = laid, rng, paths
        self.seen: dict[str, set[bytes | None]] = {}

    def begin(self) -> None:
        """Notes what every path holds now."""
        merged: Rows = {}
        for rows in reversed(self.laid.layers):
            merged.update(rows)
        self.seen = {
            path: {None if merged.get(path, TOMBSTONE) == TOMBSTONE else merged[path]}
            for path in self.paths
        }

    async def meddle(self) -> None:
        if self.rng.random() < 0.7:
            return
        for path in self.rng.sample(self.paths, min(2, len(self.paths))):
            row = self.rng.choice((TOMBSTONE, entry(self.rng.randrange(1000, 2000))))
            self.seen[path].add(None if row == TOMBSTONE else row)
            await self.laid.stage({path: row})

    def between(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        """Writes before each call of a method of the store."""
        method = getattr(self.laid.lake.kv, name)

        async def meddling(*args: object, **more: object) -> object:
            await self.meddle()
            return await method(*args, **more)

        monkeypatch.setattr(self.laid.lake.kv, name, meddling)


@pytest.mark.usefixtures("small_bounds")
async def test_rows_that_are_written_during_a_listing_hide_no_other_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each path is listed as it was at some moment of the listing."""
    for seed in range(40):
        rng = random.Random(seed)
        paths = sorted({random_path(rng) for _ in range(rng.randrange(2, 80))})
        count = rng.randint(1, 3)
        layers = [random_rows(rng, paths, staged=depth < count) for depth in range(count + 1)]
        laid = Laid(lake, layers)
        await laid.write()
        for _ in range(3):
            with monkeypatch.context() as patched:
                meddler = Meddler(laid, rng, paths)
                meddler.begin()
                for name in ("scan", "scan_without", "get_many"):
                    meddler.between(patched, name)
                found = await laid.listed(PageRequest(limit=rng.choice((2, 7, 1000))))
            listed = dict(found)
            assert [path for path, _ in found] == sorted(listed), seed
            for path in paths:
                assert listed.get(path) in meddler.seen[path], (seed, path)


class Counts:
    """Counts the rows that a store returns."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = self.probes = 0
        kv = lake.kv
        scan, scan_without, get_many = kv.scan, kv.scan_without, kv.get_many

        async def counted(
            partition: Partition, start: bytes, end: bytes | None, limit: int
        ) -> list[Row]:
            rows = await scan(partition, start, end, limit)
            self.rows += len(rows)
            return rows

        async def counted_without(
            partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
        ) -> SiftedPage:
            page = await scan_without(partition, start, end, limit, unwanted)
            self.rows += len(page.rows)
            return page

        async def counted_keys(
            partition: Partition, keys: Sequence[bytes], *, settle: bool = False
        ) -> list[Versioned | None]:
            self.probes += len(keys)
            return await get_many(partition, keys, settle=settle)

        monkeypatch.setattr(kv, "scan", counted)
        monkeypatch.setattr(kv, "scan_without", counted_without)
        monkeypatch.setattr(kv, "get_many", counted_keys)

    def take(self) -> tuple[int, int]:
        """Returns the rows that were scanned and the keys that were read since the last call."""
        taken = self.rows, self.probes
        self.rows = self.probes = 0
        return taken


def named(count: int, start: int = 0) -> list[str]:
    return [f"d/{number:05}" for number in range(start, start + count)]


def entries(paths: Sequence[str]) -> Rows:
    return {path: entry(number) for number, path in enumerate(paths)}


DEAD = 3000


async def costs(
    laid: Laid, monkeypatch: pytest.MonkeyPatch, limit: int = 50, times: int = 2
) -> list[tuple[int, int]]:
    """Lists one page of `limit` lines several times. Returns what each listing read."""
    await laid.write()
    counts = Counts(laid.lake, monkeypatch)
    taken = []
    for _ in range(times):
        request = PageRequest(prefix="d/", limit=limit)
        page = await laid.reader.page(laid.lake.main, laid.tokens, laid.base, request)
        expected = laid.expected(request)
        assert list(zip(page.paths, page.entries, strict=True)) == expected[:limit]
        taken.append(counts.take())
    return taken


async def test_deletes_over_committed_objects_are_read_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second listing reads no tombstone: the store sorts them out."""
    base = entries(named(DEAD + 200))
    laid = Laid(lake, [dict.fromkeys(named(DEAD), TOMBSTONE), base], LEAP_ROWS_MIN)
    first, second = await costs(laid, monkeypatch)
    assert first[0] >= DEAD
    assert second == (0, 0)


async def test_deletes_over_staged_objects_are_not_read(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for the first of them, which show that there are many; committed objects follow."""
    laid = Laid(
        lake,
        [dict.fromkeys(named(DEAD), TOMBSTONE), entries(named(200, DEAD))],
        LEAP_ROWS_MIN,
    )
    for rows, probes in await costs(laid, monkeypatch):
        assert rows <= 1650
        assert probes <= 64


async def test_few_committed_objects_among_deletes_of_staged_ones_are_asked_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One committed object for 30 deletes; each leap takes 64 of them along."""
    among = [f"{path}x" for path in named(DEAD)[::30]]
    base = entries([*among, *named(200, DEAD)])
    laid = Laid(lake, [dict.fromkeys(named(DEAD), TOMBSTONE), base], LEAP_ROWS_MIN)
    for rows, probes in await costs(laid, monkeypatch, limit=1000):
        assert rows <= 1100
        assert probes <= len(base)


async def test_single_objects_among_deletes_are_asked_for(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object in 30 is kept: the second listing asks for these only."""
    gone = [path for number, path in enumerate(named(DEAD)) if number % 30]
    laid = Laid(lake, [dict.fromkeys(gone, TOMBSTONE), entries(named(DEAD))], LEAP_ROWS_MIN)
    _, second = await costs(laid, monkeypatch)
    assert second == (0, 51)


async def test_a_queue_that_loses_a_few_objects_at_each_look_is_learnt(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many deletes there are, a listing reads only those that are not yet leapt over."""
    laid = Laid(lake, [{}, entries(named(DEAD))], LEAP_ROWS_MIN)
    await laid.write()
    counts = Counts(lake, monkeypatch)
    read = []
    for start in range(0, 1000, 10):
        gone = dict.fromkeys(named(10, start), TOMBSTONE)
        await laid.stage(gone)
        request = PageRequest(prefix="d/", limit=500)
        page = await laid.reader.page(laid.lake.main, laid.tokens, laid.base, request)
        assert page.paths == named(500, start + 10)
        read.append(counts.take()[0])
    assert max(read) < 200
    assert sum(read[50:]) < 50 * 50


async def test_hidden_rows_of_a_token_beneath_are_not_asked_for_one_by_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are staged in a sealed token and deleted above are read by the plain merge."""
    laid = Laid(
        lake,
        [
            dict.fromkeys(named(DEAD), TOMBSTONE),
            entries(named(DEAD)),
            entries(named(DEAD + 200)),
        ],
        rows_min=20,
    )
    for rows, probes in await costs(laid, monkeypatch, times=3):
        assert rows <= 3 * DEAD
        assert probes <= DEAD // 3


async def test_rows_of_many_tokens_are_asked_for_no_further_than_the_page_needs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token has a page of rows. Only the first ones of all tokens together may be asked for, not those of each."""
    staged = [
        {f"d/00010.{number:03}.{depth}": entry(1) for number in range(100)} for depth in range(6)
    ]
    gone = dict.fromkeys(named(DEAD), TOMBSTONE)
    laid = Laid(lake, [gone, *staged, entries(named(DEAD))], LEAP_ROWS_MIN)
    await laid.write()
    whole = PageRequest(prefix="d/")
    assert await laid.listed(whole) == laid.expected(whole)
    counts = Counts(lake, monkeypatch)
    page = await laid.reader.page(lake.main, laid.tokens, laid.base, replace(whole, limit=50))
    assert page.paths == [path for path, _ in laid.expected(whole)[:50]]
    rows, probes = counts.take()
    assert rows <= 6 * 51
    assert probes <= 6 * 51


async def test_a_row_that_is_written_over_a_remembered_tombstone_is_listed(lake: Lake) -> None:
    laid = Laid(lake, [dict.fromkeys(named(40), TOMBSTONE), entries(named(50))])
    await laid.write()
    request = PageRequest(prefix="d/")
    assert len(await laid.listed(request)) == 10
    more = {"d/00007": entry(1), "d/00007x": entry(2)}
    await laid.stage(more)
    assert await laid.listed(request) == laid.expected(request)
    assert len(await laid.listed(request)) == 12


async def test_rows_that_one_token_covers_are_not_covered_for_another(lake: Lake) -> None:
    """A discarded token, as after a reset, hides nothing any more."""
    laid = Laid(lake, [dict.fromkeys(named(40), TOMBSTONE), entries(named(50))])
    await laid.write()
    request = PageRequest(prefix="d/")
    for _ in range(2):
        assert len(await laid.listed(request)) == 10
    laid.tokens = [lake.graveler.branches.new_token()]
    laid.layers[0] = {}
    assert await laid.listed(request) == laid.expected(request)
    assert len(await laid.listed(request)) == 50


async def test_what_a_leap_learns_of_a_sealed_token_holds_for_no_other(lake: Lake) -> None:
    """The point read finds a row in the older token, which a commit takes. Its range may stay: the row was undone."""
    kept = "d/00005"
    gone = dict.fromkeys((path for path in named(40) if path != kept), TOMBSTONE)
    laid = Laid(lake, [gone, {}, entries(named(41))])
    await laid.write()
    request = PageRequest(prefix="d/")
    assert [path for path, _ in await laid.listed(request)] == [kept, "d/00040"]
    await laid.stage({kept: TOMBSTONE}, depth=1)
    for _ in range(2):
        assert [path for path, _ in await laid.listed(request)] == ["d/00040"]
    del laid.tokens[1], laid.layers[1]
    for _ in range(2):
        assert [path for path, _ in await laid.listed(request)] == [kept, "d/00040"]


async def test_a_leap_that_opened_many_ranges_goes_on_behind_them(lake: Lake) -> None:
    """Every range has a row that is kept, so each must be opened; a leap opens 64 of them."""
    kept = set(named(800)[::5])
    gone = dict.fromkeys((path for path in named(800) if path not in kept), TOMBSTONE)
    laid = Laid(lake, [gone, entries(named(800))])
    await laid.write()
    request = PageRequest(prefix="d/")
    for _ in range(2):
        assert [path for path, _ in await laid.listed(request)] == sorted(kept)


async def test_a_look_ahead_that_finds_only_deleted_objects_goes_on_behind_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes some ranges and ends; objects that are kept follow."""
    monkeypatch.setattr("tarn.block.uncovered._RANGES_MAX", 3)
    laid = Laid(lake, [dict.fromkeys(named(800), TOMBSTONE), entries(named(820))])
    await laid.write()
    request = PageRequest(prefix="d/")
    for _ in range(2):
        assert [path for path, _ in await laid.listed(request)] == named(20, 800)


async def test_leaps_count_towards_the_work_of_a_page(lake: Lake) -> None:
    """Else one page would pass any number of hidden rows, and its readers' time would be over."""
    laid = Laid(lake, [dict.fromkeys(named(40), TOMBSTONE), entries(named(60))])
    await laid.write()
    request = PageRequest(prefix="d/", rows_max=100)
    await laid.listed(request)
    page = await laid.reader.page(lake.main, laid.tokens, laid.base, request)
    assert (page.paths, page.next_after) == ([], "d/00039")


async def test_rows_that_a_token_covers_are_not_covered_by_the_token_above_it(lake: Lake) -> None:
    """The reset of a part discards the sealed token and keeps the staging token above it."""
    mine, sealed = named(3, 60), named(40)
    laid = Laid(
        lake,
        [dict.fromkeys(mine, TOMBSTONE), dict.fromkeys(sealed, TOMBSTONE), entries(named(70))],
    )
    await laid.write()
    request = PageRequest(prefix="d/")
    for _ in range(3):
        assert await laid.listed(request) == laid.expected(request)
    laid.layers.pop(1)
    laid.tokens.pop(1)
    assert await laid.listed(request) == laid.expected(request)
    assert len(await laid.listed(request)) == 67


async def test_a_row_that_lands_between_the_reads_of_a_leap_is_listed_once(
    lake: Lake, running: Running
) -> None:
    """The token was scanned before the write; the point read of the committed object finds it."""
    kept = "d/00005"
    gone = [path for path in named(40) if path != kept]
    laid = Laid(lake, [dict.fromkeys(gone, TOMBSTONE), entries(named(41))])
    await laid.write()
    request = PageRequest(prefix="d/")
    await laid.listed(request)
    gate = lake.kv.hold("get_many", path_key(kept))
    listing = running.start(laid.listed(request))
    await reached(gate)
    await laid.stage({kept: entry(777)})
    gate.open()
    assert await listing == laid.expected(request)


async def test_a_row_that_is_overwritten_between_the_scans_of_a_leap_is_listed(
    lake: Lake, running: Running
) -> None:
    """The scan of the sealed token leaves it out if the staging token has it; so that one is scanned later."""
    staged = "d/00005x"
    gone = dict.fromkeys(named(40), TOMBSTONE)
    laid = Laid(lake, [gone, {staged: entry(1)}, entries(named(41))])
    await laid.write()
    request = PageRequest(prefix="d/")
    before = await laid.listed(request)
    gate = lake.kv.hold("scan_without", after=True)
    listing = running.start(laid.listed(request))
    await reached(gate)
    await laid.stage({staged: entry(777)})
    gate.open()
    assert await listing in (before, laid.expected(request))


async def test_a_row_that_another_listing_learns_of_during_a_leap_hides_nothing_from_it(
    lake: Lake, running: Running
) -> None:
    """What is covered counts as of the beginning of the leap, before its scans: these see such rows."""
    kept = "d/00005"
    gone = [path for path in named(40) if path != kept]
    laid = Laid(lake, [dict.fromkeys(gone, TOMBSTONE), entries(named(41))])
    await laid.write()
    request = PageRequest(prefix="d/")
    before = await laid.listed(request)
    gate = lake.kv.hold("scan_without", after=True)
    listing = running.start(laid.listed(request))
    await reached(gate)
    await laid.stage({kept: entry(777)})
    assert await laid.listed(request) == laid.expected(request) != before
    gate.open()
    assert await listing in (before, laid.expected(request))


async def test_an_acknowledged_delete_of_an_object_that_a_leap_found_hides_it(
    lake: Lake, running: Running
) -> None:
    kept = "d/00005"
    gone = [path for path in named(40) if path != kept]
    laid = Laid(lake, [dict.fromkeys(gone, TOMBSTONE), entries(named(41))])
    await laid.write()
    request = PageRequest(prefix="d/")
    await laid.listed(request)
    await laid.stage({kept: TOMBSTONE})
    assert await laid.listed(request) == laid.expected(request)
