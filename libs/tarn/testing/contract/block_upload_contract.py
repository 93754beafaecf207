"""The contract of block stores, uploads in parts: a part of `BlockContract`."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore, Joined
from tarn.core.errors import TarnError
from tarn.testing.contract.block_samples import data_path, fill, outcomes, sample

__all__ = ["LARGE", "SMALL", "BlockUploadContract"]

SMALL, LARGE = 1000, 100_000


class BlockUploadContract:
    """`BlockStore.uploads`."""

    scheme: ClassVar[str]

    def namespace(self, name: str) -> str:
        """Returns one of the suite's namespaces."""
        return f"{self.scheme}://{name}"

    def key(self, path: str, name: str = "lake") -> BlockKey:
        """Returns a block's name in one of the suite's namespaces."""
        return BlockKey(self.namespace(name), path)

    async def names(self, store: BlockStore, name: str = "lake") -> list[str]:
        """Returns the paths of all visible blocks."""
        return [info.path for info in await store.list_page(self.namespace(name), "", "", 1000)]

    async def part(
        self, store: BlockStore, key: BlockKey, number: int, body: bytes, attempt: str = "a"
    ) -> tuple[int, str]:
        """Uploads one part of the suite's upload; returns number and attempt for `complete`."""
        async with await store.uploads.open_part(key, "u1", number, attempt) as writer:
            await fill(writer, body)
            await writer.finish()
        return number, writer.receipt

    async def test_parts_are_joined_in_the_given_order(self, store: BlockStore) -> None:
        """Independent of their sizes and of the order in which they were written."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        sizes = {3: 10, 1: 400_000, 10_000: 70_000, 2: 0}
        parts = [
            await self.part(store, key, number, sample(size, number))
            for number, size in sizes.items()
        ]
        assert await self.names(store) == []
        order = [1, 2, 3, 10_000]
        joined = await store.uploads.complete(key, "u1", sorted(parts))
        expected = b"".join(sample(sizes[number], number) for number in order)
        assert joined == Joined(len(expected), was_there=False)
        assert await store.read(key) == expected
        await store.uploads.discard(key, "u1")
        assert await store.read(key) == expected

    @pytest.mark.parametrize("size", [0, SMALL, LARGE])
    async def test_single_part_is_the_block(self, store: BlockStore, size: int) -> None:
        """The block stays when the upload is discarded."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        part = await self.part(store, key, 1, sample(size))
        assert (await store.uploads.complete(key, "u1", [part])).size == size
        await store.uploads.discard(key, "u1")
        assert await store.read(key) == sample(size)
        assert await self.names(store) == [key.path]

    async def test_attempts_of_one_part_do_not_disturb_each_other(self, store: BlockStore) -> None:
        """They are written concurrently; the caller decides which one counts."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        one = await store.uploads.open_part(key, "u1", 1, "one")
        two = await store.uploads.open_part(key, "u1", 1, "two")
        await one.write(sample(LARGE, 1))
        await two.write(sample(LARGE, 2))
        await two.finish()
        await one.finish()
        assert (await store.uploads.complete(key, "u1", [(1, two.receipt)])).size == LARGE
        assert await store.read(key) == sample(LARGE, 2)
        await store.uploads.discard(key, "u1")

    async def test_complete_is_idempotent(self, store: BlockStore) -> None:
        """Repeated later, concurrently, and after the parts were discarded."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        parts = [await self.part(store, key, number, sample(LARGE, number)) for number in (1, 2)]
        calls = [store.uploads.complete(key, "u1", parts) for _ in range(4)]
        joined = [each for each in await outcomes(calls) if isinstance(each, Joined)]
        assert [each.size for each in joined] == [2 * LARGE] * 4
        assert (await store.uploads.complete(key, "u1", parts)).size == 2 * LARGE
        await store.uploads.discard(key, "u1")
        await store.uploads.discard(key, "u1")
        assert (await store.uploads.complete(key, "u1", parts)).size == 2 * LARGE
        assert await store.read(key) == sample(LARGE, 1) + sample(LARGE, 2)

    @pytest.mark.parametrize("size", [SMALL, LARGE])
    async def test_a_block_of_other_parts_is_told(self, store: BlockStore, size: int) -> None:
        """Another completion was first; the caller must look whether the block is what it asked for."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        first = [await self.part(store, key, number, sample(size, number)) for number in (1, 2)]
        assert await store.uploads.complete(key, "u1", first) == Joined(2 * size, was_there=False)
        other = [first[0], (2, "other")]
        assert await store.uploads.complete(key, "u1", other) == Joined(2 * size, was_there=True)
        assert await store.read(key) == sample(size, 1) + sample(size, 2)
        await store.uploads.discard(key, "u1")

    async def test_missing_part_is_not_found(self, store: BlockStore) -> None:
        """Also an aborted part, and all parts after a discard; no block appears."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        part = await self.part(store, key, 1, sample(SMALL))
        async with await store.uploads.open_part(key, "u1", 2, "a") as writer:
            await writer.write(sample(LARGE))
        for parts in ([part, (2, "a")], [(1, "b")], [(3, "a")]):
            with pytest.raises(BlockNotFoundError):
                await store.uploads.complete(key, "u1", parts)
        await store.uploads.discard(key, "u1")
        with pytest.raises(BlockNotFoundError):
            await store.uploads.complete(key, "u1", [part])
        assert await self.names(store) == []

    async def test_part_that_is_late_for_its_upload_is_refused(self, store: BlockStore) -> None:
        """After a discard, a late part is refused and not kept."""
        key = self.key(data_path(1))
        await store.uploads.begin(key, "u1")
        writer = await store.uploads.open_part(key, "u1", 1, "a")
        await writer.write(sample(LARGE))
        await store.uploads.discard(key, "u1")
        with pytest.raises(BlockNotFoundError):
            await writer.finish()

    async def test_all_uploads_of_a_namespace_are_discarded(self, store: BlockStore) -> None:
        """Of no other namespace, also not of one whose name begins the same. Blocks stay."""
        key, other = self.key(data_path(1)), self.key(data_path(1), "lake2")
        await store.put(self.key(data_path(2)), sample(SMALL))
        writers = []
        for place in (key, other):
            await store.uploads.begin(place, "u1")
            await self.part(store, place, 1, sample(LARGE))
            writer = await store.uploads.open_part(place, "u1", 2, "late")
            await writer.write(sample(SMALL))
            writers.append(writer)
        await store.uploads.discard_all(key.namespace)
        await store.uploads.discard_all(key.namespace)
        with pytest.raises(BlockNotFoundError):
            await writers[0].finish()
        with pytest.raises(BlockNotFoundError):
            await store.uploads.complete(key, "u1", [(1, "a")])
        await writers[1].finish()
        await store.uploads.discard_all(other.namespace)
        assert await self.names(store) == [data_path(2)]

    async def test_bad_uploads_are_refused(self, store: BlockStore) -> None:
        """Invalid names, part numbers out of range, and an empty part list are refused."""
        key, uploads = self.key(data_path(1)), store.uploads
        for upload in ("", "..", "a/b", "a\0", "u" * 129):
            for call in (
                uploads.begin(key, upload),
                uploads.open_part(key, upload, 1, "a"),
                uploads.discard(key, upload),
            ):
                with pytest.raises(TarnError, match="upload"):
                    await call
        for part, attempt in ((0, "a"), (10_001, "a"), (-1, "a"), (1, ""), (1, "../x")):
            with pytest.raises(TarnError, match=r"part|attempt"):
                await uploads.open_part(key, "u1", part, attempt)
        with pytest.raises(TarnError, match="0 parts"):
            await uploads.complete(key, "u1", [])
