"""The contract of block stores: a driver's test class inherits `BlockContract` and has a `store` fixture.

The suite tests only what callers may rely on, not where bytes are stored. Sizes are chosen around the
borders of the existing drivers (64 KiB rows, 1 MiB chunks).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable
from dataclasses import replace
from typing import ClassVar

import pytest

from tarn.block.port import (
    Append,
    BlockExistsError,
    BlockKey,
    BlockNotFoundError,
    BlockStore,
    ThreadWriter,
)
from tarn.core.errors import Kind, Reason, TarnError
from tarn.testing.contract.block_samples import collect, data_path, fill, outcomes, sample
from tarn.testing.contract.block_upload_contract import LARGE, SMALL, BlockUploadContract

__all__ = ["BAD_PATHS", "BlockContract"]

SIZES = (0, 1, 65_535, 65_536, 65_537, (5 << 20) + 1)
BAD_PATHS = (
    *("", "/", "/etc/passwd", "..", ".", "../x", "data/..", "data/../../x", "data/./x", "data//x"),
    *(
        "data/x/",
        "data/\0x",
        "data/\ud800",
        ".tmp/x",
        ".uploads/u/1",
        "x" * 1025,
        "data/" + "x" * 256,
    ),
    "/".join("x" * 33),
)


class BlockContract(BlockUploadContract):
    """The suite. `scheme` is the driver's; the fixture opens and closes the store.

    A driver that shares a server among tests overrides `namespace`. `decides_races` is false if the store
    cannot tell which of several writers of one path was first; `takes_control_characters` is false if
    paths must not contain any.
    """

    decides_races: ClassVar[bool] = True
    takes_control_characters: ClassVar[bool] = True

    # Writing

    @pytest.mark.parametrize("path", [data_path(1), "_tarn/ranges/ab"])
    @pytest.mark.parametrize("size", SIZES)
    async def test_put_body_comes_back(self, store: BlockStore, path: str, size: int) -> None:
        """A body of any size is returned by read and stream; stat returns its size."""
        key, body = self.key(path), sample(size)
        await store.put(key, body)
        assert await store.read(key) == body
        assert await collect(store, key, 0, size) == body
        assert (await store.stat(key)).size == size

    @pytest.mark.parametrize("path", [data_path(1), "_tarn/ranges/ab"])
    @pytest.mark.parametrize("size", SIZES)
    async def test_written_body_comes_back(self, store: BlockStore, path: str, size: int) -> None:
        """The same through a writer whose caller reuses its buffer."""
        key, body = self.key(path), sample(size)
        async with await store.open_write(key) as writer:
            await fill(writer, body)
            await writer.finish()
        assert await store.read(key) == body
        assert await self.names(store) == [path]

    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_put_takes_any_buffer(self, store: BlockStore, size: int) -> None:
        """Bytearrays and views whose items are longer than a byte are accepted."""
        body = sample(size)
        await store.put(self.key(data_path(1)), bytearray(body))
        await store.put(self.key(data_path(2)), memoryview(body).cast("I"))
        assert await store.read(self.key(data_path(1))) == body
        assert await store.read(self.key(data_path(2))) == body

    @pytest.mark.parametrize("second", [SMALL, LARGE])
    @pytest.mark.parametrize("first", [SMALL, LARGE])
    async def test_second_put_is_refused(self, store: BlockStore, first: int, second: int) -> None:
        """A data path is written once, even with the same bytes, and keeps its first body."""
        key = self.key(data_path(1))
        await store.put(key, sample(first))
        with pytest.raises(BlockExistsError):
            await store.put(key, sample(second))
        async with await store.open_write(key) as writer:
            await writer.write(sample(second))
            with pytest.raises(BlockExistsError):
                await writer.finish()
        assert await store.read(key) == sample(first)
        assert await self.names(store) == [key.path]

    @pytest.mark.parametrize("sizes", [(SMALL, SMALL), (LARGE, LARGE), (SMALL, LARGE)])
    async def test_one_of_racing_puts_wins(self, store: BlockStore, sizes: tuple[int, int]) -> None:
        """Of six writers of one path, with one or two sizes, exactly one succeeds."""
        for turn in range(10 if self.decides_races else 0):
            key = self.key(data_path(turn))
            bodies = [sample(sizes[seed % 2], seed) for seed in range(6)]
            results = await outcomes([store.put(key, body) for body in bodies])
            winners = [body for body, result in zip(bodies, results, strict=True) if result is None]
            assert [await store.read(key)] == winners
            assert sum(isinstance(result, BlockExistsError) for result in results) == 5

    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_metadata_may_be_put_again(self, store: BlockStore, size: int) -> None:
        """Content-addressed paths accept the same bytes again, also concurrently, and no others."""
        key, body = self.key("_tarn/metaranges/cd"), sample(size)
        assert await outcomes([store.put(key, body) for _ in range(4)]) == [None] * 4
        async with await store.open_write(key) as writer:
            await writer.write(body)
            await writer.finish()
        for other in (sample(size, 1), body[:-1]):
            with pytest.raises(BlockExistsError):
                await store.put(key, other)
        assert await store.read(key) == body

    @pytest.mark.parametrize("sizes", [(SMALL, 0), (SMALL, LARGE), ((5 << 20) + 1, SMALL)])
    async def test_a_file_for_engines_is_replaced(
        self, store: BlockStore, sizes: tuple[int, int]
    ) -> None:
        """The new body is there once its write has ended; until then the old one is, also if the write is given up."""
        key, first, second = self.key("_tarn/symlinks/x/y.txt"), sample(sizes[0]), sample(sizes[1])
        async with await store.open_replace(key) as writer:
            await fill(writer, first)
            with pytest.raises(BlockNotFoundError):
                await store.stat(key)
            await writer.finish()
        async with await store.open_replace(key) as writer:
            await fill(writer, second)
            assert await store.read(key) == first
        assert await store.read(key) == first
        for body in (second, first, second):
            async with await store.open_replace(key) as writer:
                await fill(writer, body)
                await writer.finish()
            assert await store.read(key) == body
            assert (await store.stat(key)).size == len(body)
            assert await self.names(store) == [key.path]
        await store.delete_many(key.namespace, [key.path])
        assert await self.names(store) == []

    @pytest.mark.parametrize(
        "path", [data_path(1), "_tarn/ranges/ab", "_tarn/symlinks/../ranges/ab"]
    )
    async def test_no_other_block_is_replaced(self, store: BlockStore, path: str) -> None:
        """Data and metadata are written once."""
        with pytest.raises(TarnError) as caught:
            await store.open_replace(self.key(path))
        assert caught.value.kind is Kind.INVALID

    @pytest.mark.parametrize("size", [SMALL, (5 << 20) + 1])
    @pytest.mark.parametrize("is_streamed", [False, True])
    async def test_metadata_that_is_put_again_is_young(
        self, store: BlockStore, size: int, *, is_streamed: bool
    ) -> None:
        """No collection judges it by the time of the first put. Times may be as coarse as seconds."""
        key, body = self.key("_tarn/ranges/ef"), sample(size)
        await store.put(key, body)
        first = await store.stat(key)
        async with asyncio.timeout(30):
            while (await store.stat(key)).mtime_us == first.mtime_us:
                if is_streamed:
                    async with await store.open_write(key) as writer:
                        await fill(writer, body)
                        await writer.finish()
                else:
                    await store.put(key, body)
                await asyncio.sleep(0.05)
        assert (await store.stat(key)).mtime_us > first.mtime_us
        assert await store.read(key) == body

    @pytest.mark.parametrize("path", [data_path(1), "_tarn/ranges/ab"])
    @pytest.mark.parametrize("size", [SMALL, LARGE, 3 << 20])
    async def test_nothing_is_visible_before_finish(
        self, store: BlockStore, path: str, size: int
    ) -> None:
        """An unfinished or aborted block is visible neither by name nor in a listing."""
        key = self.key(path)
        writer = await store.open_write(key)
        await fill(writer, sample(size))
        with pytest.raises(BlockNotFoundError):
            await store.read(key)
        assert await self.names(store) == []
        await writer.abort()
        await writer.abort()
        with pytest.raises(BlockNotFoundError):
            await store.stat(key)
        assert await self.names(store) == []
        await store.put(key, b"later")
        assert await store.read(key) == b"later"

    @pytest.mark.parametrize("size", [SMALL, 3 << 20])
    async def test_leaving_without_finish_aborts(self, store: BlockStore, size: int) -> None:
        """Leaving the `async with` block without finish, or by an error, aborts the write."""
        key = self.key(data_path(1))
        writer = await store.open_write(key)
        with contextlib.suppress(ZeroDivisionError):
            async with writer:
                await fill(writer, sample(size))
                raise ZeroDivisionError
        assert await self.names(store) == []
        with pytest.raises(RuntimeError):
            await writer.write(b"x")
        with pytest.raises(RuntimeError):
            await writer.finish()

    async def test_a_thread_that_has_the_bytes_writes_them(self, store: BlockStore) -> None:
        """Between other writes; work that fails has not made a block. Drivers need not offer it."""
        key, body = self.key(data_path(1)), sample(LARGE)
        async with await store.open_write(key) as writer:
            if not isinstance(writer, ThreadWriter):
                pytest.skip("this driver does not write in threads")

            def work(append: Append, most: int) -> str:
                assert most >= len(body)
                buffer = bytearray(1000)
                for start in range(0, len(body), 1000):
                    piece = body[start : start + 1000]
                    buffer[: len(piece)] = piece
                    append(memoryview(buffer)[: len(piece)])
                return threading.current_thread().name

            await writer.write(b"first")
            assert await writer.write_by_thread(work) != threading.current_thread().name
            await writer.write(b"last")
            await writer.finish()
        assert await store.read(key) == b"first" + body + b"last"

        def fails(append: Append, _: int) -> None:
            append(memoryview(body))
            raise ZeroDivisionError

        async with await store.open_write(self.key(data_path(2))) as writer:
            assert isinstance(writer, ThreadWriter)
            with pytest.raises(ZeroDivisionError):
                await writer.write_by_thread(fails)
        assert await self.names(store) == [key.path]

    async def test_concurrent_writers_do_not_mix(self, store: BlockStore) -> None:
        """Many tasks write bodies of both kinds concurrently."""
        sizes = [SMALL if number % 3 else 300_000 for number in range(60)]

        async def write(number: int) -> None:
            async with await store.open_write(self.key(data_path(number))) as writer:
                await fill(writer, sample(sizes[number], number))
                await writer.finish()

        await outcomes([write(number) for number in range(60)])
        for number, size in enumerate(sizes):
            assert await store.read(self.key(data_path(number))) == sample(size, number)

    # Reading

    @pytest.mark.parametrize("size", [SMALL, LARGE, (3 << 20) + 5])
    async def test_ranges_are_clipped(self, store: BlockStore, size: int) -> None:
        """`read` returns the existing part of a range, and nothing beyond the end."""
        key, body = self.key(data_path(1)), sample(size)
        await store.put(key, body)
        for start in (0, 1, size - 1, size, size + 7):
            for length in (0, 1, size, None):
                expected = body[start:] if length is None else body[start : start + length]
                assert await store.read(key, start, length) == expected
        for start, length in ((-1, 2), (0, -1)):
            with pytest.raises(TarnError) as caught:
                await store.read(key, start, length)
            assert caught.value.kind is Kind.INVALID

    @pytest.mark.parametrize("size", [SMALL, LARGE, (3 << 20) + 5])
    async def test_stream_gives_the_range(self, store: BlockStore, size: int) -> None:
        """A stream returns the range in order, in chunks within the limit."""
        key, body = self.key(data_path(1)), sample(size)
        await store.put(key, body)
        for start, length in ((0, size), (1, size - 1), (size // 2, 1), (7, 0), (size, 0)):
            assert await collect(store, key, start, length) == body[start : start + length]

    @pytest.mark.parametrize("size", [SMALL, LARGE, (3 << 20) + 5])
    async def test_block_that_ends_early_is_corrupt(self, store: BlockStore, size: int) -> None:
        """A stream never ends short without an error."""
        key = self.key(data_path(1))
        await store.put(key, sample(size))
        with pytest.raises(TarnError) as caught:
            await collect(store, key, 0, size + 1)
        assert (caught.value.kind, caught.value.reason) == (Kind.CORRUPT, Reason.DATA_CORRUPT)

    @pytest.mark.parametrize("path", [data_path(1), "_tarn/commits/ef", "data"])
    async def test_absent_block_is_not_found(self, store: BlockStore, path: str) -> None:
        """In an empty namespace, and in one that has other blocks."""
        for _ in range(2):
            with pytest.raises(BlockNotFoundError):
                await store.read(self.key(path))
            with pytest.raises(BlockNotFoundError):
                await store.stat(self.key(path))
            with pytest.raises(BlockNotFoundError):
                await collect(store, self.key(path), 0, 1)
            await store.put(self.key(data_path(2)), b"x")
            await store.delete_many(self.key("").namespace, [data_path(3), "_tarn/x"])
            await store.put(self.key(data_path(3)), sample(LARGE))
            await store.delete_many(self.key("").namespace, [data_path(2), data_path(3)])

    async def test_stream_may_be_left(self, store: BlockStore) -> None:
        """A reader may stop after the first of several chunks."""
        key = self.key(data_path(1))
        await store.put(key, sample(4 << 20))
        stream = store.stream(key, 0, 4 << 20)
        assert sample(4 << 20).startswith(await anext(stream))
        del stream
        assert len(await store.read(key)) == 4 << 20

    # Listing and deleting

    async def test_listing_is_in_byte_order(self, store: BlockStore) -> None:
        """Both kinds, page by page, with every prefix: whole paths are ordered, not segments."""
        paths = [
            "a/b",
            "a-b",
            "a.b/c",
            "a0",
            "a/b-",
            "a/b.x",
            "A",
            "_tarn/ranges/1",
            "_tarn/x",
            "é",
        ]
        paths += ["a/d/1", "a/d/2", "a/d!", "z/\u00ff", "z/\uffff", "z/\U0001f600", "back\\slash"]
        for number, path in enumerate(paths):
            await store.put(self.key(path), sample(LARGE if number % 2 else number))
        namespace = self.key("").namespace
        for prefix in (
            "",
            "a",
            "a/",
            "a/b",
            "a/d/",
            "a/d/1",
            "_tarn/",
            "z/",
            "z/\uffff",
            "x",
            "a//",
        ):
            expected = sorted(path for path in paths if path.startswith(prefix))
            for limit in (1, 2, 5, 100):
                found: list[str] = []
                while page := await store.list_page(
                    namespace, prefix, found[-1] if found else "", limit
                ):
                    assert len(page) <= limit
                    found += [info.path for info in page]
                    if len(page) < limit:
                        break
                assert found == expected
        for after in ("a/", "a/c", "a/d/", "a/d/1", "zz", "_tarn/ranges/1"):
            page = await store.list_page(namespace, "", after, 100)
            assert [info.path for info in page] == sorted(path for path in paths if path > after)

    async def test_listing_tells_size_and_time(self, store: BlockStore) -> None:
        """A listing returns the same as `stat`, without the ETag, for both kinds."""
        for number, size in enumerate((0, SMALL, LARGE)):
            await store.put(self.key(data_path(number)), sample(size))
        page = await store.list_page(self.key("").namespace, "data/", "", 10)
        assert [info.size for info in page] == [0, SMALL, LARGE]
        found = [await store.stat(self.key(data_path(number))) for number in range(3)]
        assert page == [replace(info, etag="") for info in found]
        assert all(info.mtime_us > 0 for info in page)

    async def test_bad_listings(self, store: BlockStore) -> None:
        """Limits are checked; a prefix that no path can have matches nothing."""
        namespace = self.key("").namespace
        await store.put(self.key(data_path(1)), b"x")
        for limit in (0, -1, 1_000_000):
            with pytest.raises(TarnError, match="limit"):
                await store.list_page(namespace, "", "", limit)
        for prefix in ("/", "../", "data/../", "./", "data//", ".", "\0", "data/\0"):
            assert await store.list_page(namespace, prefix, "", 10) == []

    async def test_deleted_blocks_are_gone(self, store: BlockStore) -> None:
        """Deletes blocks of both kinds, ignores absent ones, and keeps all others."""
        for number in range(8):
            await store.put(self.key(data_path(number)), sample(LARGE if number % 2 else SMALL))
        doomed = [data_path(number) for number in (0, 1, 2, 3, 100)]
        for _ in range(2):
            await store.delete_many(self.key("").namespace, doomed)
            assert await self.names(store) == [data_path(number) for number in (4, 5, 6, 7)]
        with pytest.raises(BlockNotFoundError):
            await store.read(self.key(data_path(1)))
        await store.delete_many(self.namespace("never-written"), [data_path(1)])

    async def test_namespaces_are_isolated(self, store: BlockStore) -> None:
        """The same path is another block in another namespace; listing and deleting stay inside."""
        for size in (SMALL, LARGE):
            for seed, name in enumerate(("lake", "lake2", "sea/one", "sea/two")):
                await store.put(self.key(data_path(size), name), sample(size, seed))
        for seed, name in enumerate(("lake", "lake2", "sea/one", "sea/two")):
            for size in (SMALL, LARGE):
                assert await store.read(self.key(data_path(size), name)) == sample(size, seed)
        await store.delete_many(self.key("").namespace, [data_path(SMALL), data_path(LARGE)])
        assert await self.names(store) == []
        assert len(await self.names(store, "lake2")) == 2

    @pytest.mark.parametrize("path", BAD_PATHS)
    async def test_bad_path_is_refused(self, store: BlockStore, path: str) -> None:
        """Every operation refuses a bad path as INVALID."""
        key = self.key(path)
        calls: list[Awaitable[object]] = [
            store.put(key, b"x"),
            store.open_write(key),
            store.open_replace(key),
            store.read(key),
            store.stat(key),
            collect(store, key, 0, 1),
            store.delete_many(key.namespace, [data_path(1), path]),
            store.uploads.begin(key, "u"),
            store.uploads.open_part(key, "u", 1, "a"),
            store.uploads.complete(key, "u", [(1, "a")]),
            store.uploads.discard(key, "u"),
        ]
        for result in await outcomes(calls):
            assert isinstance(result, TarnError)
            assert result.kind is Kind.INVALID

    @pytest.mark.parametrize(
        "name", ["", "/", "..", ".hidden", "a/../b", "a//b", "a/", "a b", "a\0", "é"]
    )
    async def test_bad_namespace_is_refused(self, store: BlockStore, name: str) -> None:
        """A namespace is used as a directory or prefix, so bad names are refused."""
        for namespace in (f"{self.scheme}://{name}", "lake"):
            with pytest.raises(TarnError, match="namespace") as caught:
                await store.put(BlockKey(namespace, data_path(1)), b"x")
            assert caught.value.kind is Kind.INVALID

    async def test_backslash_is_an_ordinary_character(self, store: BlockStore) -> None:
        """So are spaces, dots, percent signs and all other UTF-8 characters."""
        paths = [
            "data/..\\x",
            "data/...",
            "data/ ",
            "data/%2e%2e",
            "data/\u202e",
            "data/~",
        ]
        paths += ["data/\n"] if self.takes_control_characters else []
        for size in (SMALL, LARGE):
            for path in paths:
                await store.put(self.key(path + str(size)), sample(size))
                assert await store.read(self.key(path + str(size))) == sample(size)
        assert len(await self.names(store)) == 2 * len(paths)

    async def test_closed_store_refuses(self, store: BlockStore) -> None:
        """A closed store refuses every operation; close may be repeated."""
        key = self.key(data_path(1))
        await store.put(key, b"x")
        await store.close()
        await store.close()
        calls: list[Awaitable[object]] = [store.put(self.key(data_path(2)), b"x"), store.read(key)]
        for result in await outcomes(calls):
            assert isinstance(result, TarnError)
            assert result.kind is Kind.UNAVAILABLE
