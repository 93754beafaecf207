"""Maps namespaces of a local store to their numbers and directories, and finds blocks in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarn.aio.bounded_map import BoundedMap
from tarn.block.keys import METADATA_PREFIX, parse_namespace
from tarn.block.local.group_writer import GroupWriter
from tarn.block.local.small import SmallReader
from tarn.block.local.tree import Tree
from tarn.block.port import BlockInfo, BlockKey, BlockNotFoundError

__all__ = ["LocalNamespace", "Namespaces"]

_KNOWN_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class LocalNamespace:
    """The location of a namespace.

    Attributes:
        number: its id in the sqlite file; -1 before the first write to it.
        name: its path relative to the root.
        names: the segments of `name`.
    """

    number: int
    name: str
    names: tuple[str, ...]

    def file(self, path: str) -> tuple[str, ...]:
        """Returns the file path of a large block; `path` is checked already."""
        return (*self.names, *path.split("/"))


class Namespaces:
    """Finds namespaces and blocks. Caches namespaces, whose numbers never change.

    Attributes:
        known: returns a namespace that is in the cache, and so has a number; None for any other.
    """

    def __init__(self, tree: Tree, reader: SmallReader, group_writer: GroupWriter) -> None:
        self._tree = tree
        self._reader = reader
        self._group_writer = group_writer
        self._known: BoundedMap[str, LocalNamespace] = BoundedMap(_KNOWN_MAX)
        self.known = self._known.get

    def look(self, namespace: str) -> LocalNamespace:
        """Returns the namespace, for reading.

        Raises:
            TarnError: INVALID if it is not `local://` followed by safe names.
        """
        if ns := self._known.get(namespace):
            return ns
        names = parse_namespace(namespace, "local")
        name = "/".join(names)
        number = self._reader.namespace_id(name)
        ns = LocalNamespace(-1 if number is None else number, name, names)
        return ns if number is None else self._remember(namespace, ns)

    async def enter(self, namespace: str) -> LocalNamespace:
        """Returns the namespace, for writing; creates it if it is new.

        Raises:
            TarnError: INVALID as `look`; `NamespaceOverlapError` if it would overlap another namespace.
        """
        ns = self.look(namespace)
        if ns.number >= 0:
            return ns
        number = await self._group_writer.register(ns.name)
        return self._remember(namespace, LocalNamespace(number, ns.name, ns.names))

    def _remember(self, namespace: str, ns: LocalNamespace) -> LocalNamespace:
        self._known.put(namespace, ns)
        return ns

    def is_row(self, ns: LocalNamespace, path: str) -> bool:
        """Returns whether a block is a row; no block under `_tarn/` is."""
        if ns.number < 0 or path.startswith(METADATA_PREFIX):
            return False
        return self._reader.stat(ns.number, path) is not None

    def stat(self, ns: LocalNamespace, key: BlockKey) -> BlockInfo:
        """Returns size and time of a block, row or file.

        Raises:
            BlockNotFoundError: the block does not exist.
        """
        if ns.number >= 0 and not key.path.startswith(METADATA_PREFIX):
            info = self._reader.stat(ns.number, key.path)
            if info is not None:
                return info
        try:
            found = self._tree.stat(ns.file(key.path))
        except (FileNotFoundError, NotADirectoryError):
            raise BlockNotFoundError(key) from None
        return BlockInfo(key.path, found.st_size, found.st_mtime_ns // 1000)
