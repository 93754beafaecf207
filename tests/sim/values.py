"""Values: numbers that stand for objects. Every write has a unique one, which can be read from its entry.

Some objects are *equal*: their entries have one identity (size and MD5), and each has an address of its own. To
clients they are one value, the first of them (`Values.same`); what refers to blocks tells them apart.
"""

from dataclasses import dataclass, field, replace

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.entry import Entry, etag_of, is_tombstone, pack, unpack
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path

__all__ = ["Values"]

_PLACE = "local://data"


def _address(value: int) -> bytes:
    return (0x0192_0000_0000 + value).to_bytes(6, "big") + value.to_bytes(10, "big")


@dataclass
class Values:
    """The values of a run.

    Attributes:
        blocks: store of their bytes.
    """

    blocks: MemBlockStore
    _count: int = 0
    _placed: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    _by_etag: dict[str, int] = field(default_factory=dict)
    _etags: dict[int, str] = field(default_factory=dict)
    _joined: dict[int, tuple[str, bytes, bytes]] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)
    _equal: dict[tuple[int, bytes], int] = field(default_factory=dict)

    async def new(self, like: int | None = None) -> int:
        """Returns a new value, and writes its block; with `like`, an object that is equal to that one."""
        self._count += 1
        await self.blocks.put(BlockKey(_PLACE, physical_path(_address(self._count))), b"x")
        self._note_equal(self._count, like)
        return self._count

    def placed(self, namespace: str, address: bytes, like: int | None = None) -> int:
        """Returns a new value, whose block has this address; several values may share one. For `like` see `new`."""
        self._count += 1
        self._placed[self._count] = (namespace, address)
        self._note_equal(self._count, like)
        return self._count

    def _note_equal(self, value: int, like: int | None) -> None:
        if like is None:
            return
        assert self.may_be_equal(like), "an upload has an ETag of its own"
        self._first[value] = self.same(like)
        self._equal[self.same(like), self.place(value)[1]] = value

    @property
    def has_equals(self) -> bool:
        """Whether there are equal objects."""
        return bool(self._first)

    def may_be_equal(self, value: int) -> bool:
        """Whether another object may be equal to a value: not to that of an upload or a link."""
        return value > 0 and value not in self._joined

    def same(self, value: int) -> int:
        """Returns the first of the values that are equal to a value; the value itself if it is none of an entry."""
        return self._first.get(value, value)

    def place(self, value: int) -> tuple[str, bytes]:
        """Returns the namespace and the address of the block of a value."""
        if value in self._joined:
            return self._joined[value][:2]
        return self._placed.get(value) or (_PLACE, _address(value))

    def packed(self, value: int, operation_id: str = "", mtime_us: int = 0) -> bytes:
        """Returns the entry of a value written by a PUT: its size and MD5 each encode the value, and so does its
        address, if it was not placed. Those of equal objects encode the first of them."""
        address, first = self.place(value)[1], self.same(value)
        md5 = first.to_bytes(16, "big")
        return pack(Entry(first, mtime_us, address, md5, operation_id=operation_id))

    def joined(self, etag: str, namespace: str, address: bytes, body: bytes) -> int:
        """Returns the value of an upload that is completed with these bytes."""
        self._count += 1
        self._by_etag[etag] = self._count
        self._etags[self._count] = etag
        self._joined[self._count] = (namespace, address, body)
        return self._count

    def etag(self, value: int) -> str:
        """Returns the ETag of a value."""
        return self._etags.get(value) or etag_of(self.packed(value))

    def by_etag(self, etag: str) -> int:
        """Returns the value of an ETag; of equal ones the first."""
        return self._by_etag[etag] if etag in self._by_etag else int(etag, 16)

    def of(self, packed: bytes) -> int:
        """Returns the value of an entry; a number that no write has if its fields do not agree."""
        entry = unpack(packed)
        joined = self._by_etag.get(entry.etag)
        if joined is not None:
            _, address, body = self._joined[joined]
            agrees = (entry.address, entry.size) == (address, len(body))
            return joined if agrees and not is_tombstone(packed) else -1000 - joined
        unnamed = pack(
            replace(entry, operation_id="", mtime_us=0, judged_move_us=0, replaced_address=b"")
        )
        value = self._equal.get((entry.size, entry.address), entry.size)
        agrees = unnamed == self.packed(value)
        return value if agrees and not is_tombstone(packed) else -1000 - entry.size

    def block(self, value: int) -> BlockKey:
        """Returns the key of the block of a value."""
        namespace, address = self.place(value)
        return BlockKey(namespace, physical_path(address))

    async def has_block(self, value: int) -> bool:
        """Whether the bytes of a value exist. A copy has any bytes."""
        try:
            body = await self.blocks.read(self.block(value))
        except TarnError:
            return False
        if value in self._placed:
            return True
        return body == (self._joined[value][2] if value in self._joined else b"x")
