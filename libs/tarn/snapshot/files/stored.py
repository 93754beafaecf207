"""Finished snapshots of a target: lists them, opens them, and checks their files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from tarn.aio.parallel import for_each
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import StoreLevel, unsupported
from tarn.kv.port import Row
from tarn.snapshot.files.chunks import rows_in
from tarn.snapshot.files.content import content_file, corrupt_error, read_content
from tarn.snapshot.files.manifest import (
    MANIFEST_BYTES_MAX,
    SNAPSHOT_ID,
    Manifest,
    Scope,
    decode_index,
    manifest_file,
)
from tarn.snapshot.files.ranges import Range
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.work import TransferOptions, TransferProgress

__all__ = [
    "StoredSnapshot",
    "check_files",
    "manifests",
    "open_snapshot",
    "require_same",
    "snapshot_ids",
]

_COMMANDS: Final = {
    Scope.INSTALLATION: ("backup", "tarn backup create"),
    Scope.STORE: ("dump of a store", "tarn kv dump"),
    Scope.REPOSITORY: ("dump of a repository", "tarn repo dump"),
}
"""What people call a snapshot of each scope, and what makes one."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A finished snapshot, whose manifest and index are intact.

    Attributes:
        target: where it is.
        manifest: its manifest.
        lines: its index.
    """

    target: Target
    manifest: Manifest
    lines: tuple[Range, ...]

    @property
    def about(self) -> str:
        """The snapshot, for people."""
        what, _ = _COMMANDS[self.manifest.scope]
        return f"{what} {self.manifest.snapshot_id}"

    async def rows(self, line: Range) -> list[Row]:
        """Returns the rows of a chunk, by key.

        Raises:
            TarnError: CORRUPT: the chunk is missing or damaged. Also the target's errors.
        """
        text = await read_content(self.target, line.digest)
        return await asyncio.to_thread(rows_in, text, line)


async def snapshot_ids(target: Target, scope: Scope) -> list[str]:
    """The ids of all finished snapshots of a scope, oldest first."""
    found = []
    async for name in target.files(scope.value):
        folder, _, last = name.rpartition("/")
        snapshot_id = folder.removeprefix(f"{scope.value}/")
        if last == "manifest.json" and SNAPSHOT_ID.fullmatch(snapshot_id):
            found.append(snapshot_id)
    return sorted(found)


async def read_manifest(target: Target, scope: Scope, snapshot_id: str) -> Manifest:
    """Reads the manifest of a snapshot.

    Raises:
        TarnError: NOT_FOUND: there is no finished snapshot of this id. CORRUPT. FAILED_PRECONDITION: it has another
            format version. Also the target's errors.
    """
    name = manifest_file(scope, snapshot_id)
    try:
        text = await target.read(name, MANIFEST_BYTES_MAX)
    except TarnError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        what, _ = _COMMANDS[scope]
        newest = ", ".join(reversed((await snapshot_ids(target, scope))[-3:])) or "none"
        about = (
            f"there is no finished {what} {snapshot_id} in {target.about}; the newest are: {newest}"
        )
        raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, about) from error
    manifest = Manifest.decode(text)
    if (manifest.scope, manifest.snapshot_id) != (scope, snapshot_id):
        raise corrupt_error(f"{name} belongs to {manifest.scope.value}/{manifest.snapshot_id}")
    return manifest


async def manifests(target: Target, scope: Scope) -> AsyncIterator[Manifest]:
    """Yields the manifests of all finished snapshots of a scope, oldest first."""
    for snapshot_id in await snapshot_ids(target, scope):
        yield await read_manifest(target, scope, snapshot_id)


async def open_snapshot(target: Target, scope: Scope, snapshot_id: str = "") -> StoredSnapshot:
    """Opens a snapshot; checks its index now, and each chunk when it is read.

    Args:
        target: where it is.
        scope: what it is of.
        snapshot_id: empty: the newest one.

    Raises:
        TarnError: NOT_FOUND: there is no such snapshot. CORRUPT: it is damaged. FAILED_PRECONDITION: it has another
            format version. Also the target's errors.
    """
    if not snapshot_id:
        known = await snapshot_ids(target, scope)
        if not known:
            what, command = _COMMANDS[scope]
            text = f"there is no finished {what} in {target.about}; `{command}` makes one"
            raise TarnError(Kind.NOT_FOUND, Reason.INVALID_ARGUMENT, text)
        snapshot_id = known[-1]
    manifest = await read_manifest(target, scope, snapshot_id)
    lines: list[Range] = []
    for digest in manifest.index:
        data = await read_content(target, digest)
        lines += await asyncio.to_thread(decode_index, data, content_file(digest))
        if len(lines) > manifest.chunks:
            break  # reported below
    if len(lines) != manifest.chunks or sum(line.rows for line in lines) != manifest.rows:
        raise corrupt_error(
            f"the index of {scope.value}/{snapshot_id} does not agree with its manifest; use another copy"
        )
    return StoredSnapshot(target, manifest, tuple(lines))


def require_same(snapshot: StoredSnapshot, installation_id: str) -> StoreLevel:
    """Returns the feature level that a store gets with the rows of a snapshot.

    Raises:
        TarnError: FAILED_PRECONDITION: the snapshot is of another installation, or of a feature level that this release
            does not support (FEATURE_LEVEL).
    """
    manifest = snapshot.manifest
    if manifest.installation_id != installation_id:
        text = (
            f"the {snapshot.about} is of installation {manifest.installation_id!r}, not {installation_id!r}: set "
            "installation.id in the configuration"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.INVALID_ARGUMENT, text)
    level = StoreLevel(manifest.level, manifest.level)
    if text := unsupported(level, installation_id):
        text = f"the {snapshot.about} cannot be used by this release: {text}"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, text)
    return level


async def check_files(
    snapshot: StoredSnapshot, options: TransferOptions, progress: TransferProgress | None = None
) -> list[str]:
    """Reads all chunks of a snapshot and checks them; returns a line for each damaged chunk.

    Args:
        snapshot: what to check.
        options: how many chunks are read at once; shows the progress.
        progress: updated.

    Raises:
        TarnError: the target does not answer.
    """
    progress = progress or TransferProgress("files", units_total=len(snapshot.lines))
    damaged: list[str] = []

    async def check(line: Range) -> None:
        try:
            await snapshot.rows(line)
        except TarnError as error:
            if error.kind is not Kind.CORRUPT:
                raise
            damaged.append(error.message)
        progress.units += 1
        progress.add(line.rows, line.size_bytes, changed=False)
        options.report(progress)

    await for_each(snapshot.lines, check, options.concurrency)
    return sorted(damaged)
