"""Reads the commits and notes in a storage namespace, for a recovery without the KV (docs/design/dump.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tarn.aio.parallel import for_each
from tarn.block.port import BlockInfo, BlockKey, BlockStore
from tarn.core.commit import COMMIT_PATH, COMMITS, NOTE_PATH, NOTES, commit_id_of, from_json
from tarn.core.dump import LINE_BYTES_MAX, NoteLine, from_line, to_line
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import CommitId, parse_branch_id
from tarn.kv.records import Repository
from tarn_graveler.repository.dumping import PAGE_BYTES

__all__ = ["NamespacePage", "Recovering"]

_READS_AT_ONCE = 16


@dataclass(slots=True)
class NamespacePage:
    """Some files of a namespace.

    Attributes:
        lines: commits and notes.
        damaged: paths of files that cannot be used.
        cursor: where the next page begins; empty if there is none.
    """

    lines: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    cursor: str = ""


class Recovering:
    """Reads namespaces."""

    def __init__(self, blocks: BlockStore) -> None:
        self._blocks = blocks

    async def page(self, repository: Repository, cursor: str, limit: int) -> NamespacePage:
        """Returns the contents of up to `limit` files: first those of commits, then notes of branch heads.

        Raises:
            TarnError: errors of the block store.
        """
        section, _, after = (cursor or f"{COMMITS}:").partition(":")
        namespace = repository.storage_namespace
        files = await self._blocks.list_page(
            namespace, section, section + after if after else "", limit
        )
        page = NamespacePage()
        taken = _first(files)
        if section == COMMITS:
            await self._read_commits(namespace, taken, page)
        else:
            for info in taken:
                _add_note(info.path, page)
        if len(taken) < len(files) or len(files) == limit:
            page.cursor = f"{section}:{taken[-1].path[len(section) :]}"
        elif section == COMMITS:
            page.cursor = f"{NOTES}:"
        return page

    async def _read_commits(
        self, namespace: str, files: Sequence[BlockInfo], page: NamespacePage
    ) -> None:
        found: dict[str, str] = {}

        async def read(info: BlockInfo) -> None:
            named = COMMIT_PATH.fullmatch(info.path)
            if named is None or info.size > LINE_BYTES_MAX:
                return
            data = await self._blocks.read(BlockKey(namespace, info.path), 0, LINE_BYTES_MAX)
            try:
                commit = from_json(data)
                line = to_line(commit)
                from_line(
                    line
                )  # a commit that no restore accepts must not stop the recovery of the others
            except TarnError as error:
                if error.kind not in (Kind.CORRUPT, Kind.INVALID):
                    raise
                return
            if commit_id_of(commit) == named[1]:
                found[info.path] = line

        await for_each(files, read, _READS_AT_ONCE)
        page.lines += [found[info.path] for info in files if info.path in found]
        page.damaged += [info.path for info in files if info.path not in found]


def _first(files: Sequence[BlockInfo]) -> Sequence[BlockInfo]:
    """Returns as many files as a page may hold; at least one if there is any."""
    size = 0
    for count, info in enumerate(files, 1):
        size += min(info.size, LINE_BYTES_MAX)
        if size >= PAGE_BYTES:
            return files[:count]
    return files


def _add_note(path: str, page: NamespacePage) -> None:
    """Adds a note from its path, which holds all of its content."""
    named = NOTE_PATH.fullmatch(path)
    try:
        if named is None:
            raise ValueError(path)
        line = to_line(NoteLine(parse_branch_id(named[1]), CommitId(named[3]), int(named[2])))
        from_line(line)  # the time may be one that no clock shows
    except (TarnError, ValueError):
        page.damaged.append(path)
        return
    page.lines.append(line)
