"""Parts of uploads: files `<namespace>/.uploads/<upload>/<part>-<attempt>`, joined inside the kernel.

Parts are files at any size, so that any process can join them. A part keeps its name until the upload is
discarded, so a repeated or concurrent `complete` finds it again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tarn.block.keys import check_part, check_parts, check_path, check_upload
from tarn.block.local.draft import Draft, Part
from tarn.block.local.faults import Faults
from tarn.block.local.intake import Intake, LocalWriter
from tarn.block.local.namespaces import LocalNamespace, Namespaces
from tarn.block.port import BlockExistsError, BlockKey, BlockNotFoundError, Joined

__all__ = ["UPLOADS", "LocalUploads"]

UPLOADS: Final = ".uploads"


class LocalUploads:
    """`BlockUploads` of a local store.

    Args:
        namespaces: finds namespaces and finished blocks.
        intake: places the joined file.
    """

    def __init__(self, namespaces: Namespaces, intake: Intake) -> None:
        self._namespaces = namespaces
        self._intake = intake

    async def begin(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.begin`. Only checks the names: the first part creates the directories."""
        check_path(key.path)
        check_upload(upload)
        self._namespaces.look(key.namespace)

    async def open_part(self, key: BlockKey, upload: str, part: int, attempt: str) -> LocalWriter:
        """See `BlockUploads.open_part`. If the upload was discarded in the meantime, `finish` raises
        `BlockNotFoundError`: a late part leaves nothing behind."""
        check_path(key.path)
        name = check_part(part, attempt)
        what = f"part {part} of upload {check_upload(upload)}"
        with self._intake.guard, Faults(f"begin {what}"):
            ns = await self._namespaces.enter(key.namespace)
            base = (*ns.names, UPLOADS, upload)
            with self._intake.tree.open_dir(base, create=True):
                pass  # created here and not by `finish`, which must notice a discard
        return LocalWriter(
            self._intake,
            ns,
            what,
            -1,
            _never,
            lambda draft: self._place(key, (*base, name), draft),
            receipt=attempt,
        )

    async def _place(self, key: BlockKey, target: tuple[str, ...], draft: Draft) -> None:
        def link() -> None:
            draft.link(target, create=False)
            self._intake.tree.sync_dir(target[:-1])

        try:
            await self._intake.threads.run(link)
        except FileNotFoundError:
            raise BlockNotFoundError(key) from None
        except FileExistsError:
            raise BlockExistsError(key) from None

    async def complete(
        self, key: BlockKey, upload: str, parts: Sequence[tuple[int, str]]
    ) -> Joined:
        """See `BlockUploads.complete`. One part is linked, several are copied."""
        check_path(key.path)
        check_upload(upload)
        names = check_parts(upload, parts)
        with self._intake.guard, Faults(f"complete upload {upload} of block {key.path}"):
            ns = await self._namespaces.enter(key.namespace)
            with suppress(BlockNotFoundError):
                return await self._finished(ns, key)
            try:
                return await self._join(ns, key, [(*ns.names, UPLOADS, upload, n) for n in names])
            except (BlockExistsError, FileNotFoundError):
                # Another completion was first, or a part is missing: discarded after one, or never written.
                return await self._finished(ns, key)

    async def _finished(self, ns: LocalNamespace, key: BlockKey) -> Joined:
        """Returns the existing block and makes it durable: its creator may not have synced it yet."""
        size = self._namespaces.stat(ns, key).size
        with suppress(FileNotFoundError):  # a row
            directory = ns.file(key.path)[:-1]
            await self._intake.threads.run(lambda: self._intake.tree.sync_dir(directory))
        return Joined(size, was_there=True)

    async def _join(
        self, ns: LocalNamespace, key: BlockKey, parts: Sequence[tuple[str, ...]]
    ) -> Joined:
        intake = self._intake
        if len(parts) == 1:
            part = Part(intake.tree, parts[0], intake.drafts.clock)
            size = part.size()
            await intake.place(ns, key, part, is_shared=True)
            return Joined(size, was_there=False)
        draft: Draft | None = None

        def join() -> Draft:
            nonlocal draft
            intake.reserve.check(f"complete an upload of block {key.path}")
            draft = intake.drafts.create(ns.names)
            for names in parts:
                fd = intake.tree.open_read(names)
                try:
                    draft.append_file(fd)
                finally:
                    os.close(fd)
            draft.seal()
            return draft

        intake.files.take()
        try:
            whole = await intake.threads.run(join)
            await intake.place(ns, key, whole, is_shared=True)
            return Joined(whole.size(), was_there=False)
        finally:
            if draft is not None:
                with suppress(OSError):  # `sweep` removes it later
                    await intake.threads.run(draft.discard)
            intake.files.give()

    async def discard(self, key: BlockKey, upload: str) -> None:
        """See `BlockUploads.discard`."""
        check_path(key.path)
        check_upload(upload)
        with self._intake.guard, Faults(f"discard upload {upload} of block {key.path}"):
            base = (*self._namespaces.look(key.namespace).names, UPLOADS, upload)
            await self._intake.threads.run(lambda: self._remove(base))

    async def discard_all(self, namespace: str) -> None:
        """See `BlockUploads.discard_all`."""
        with self._intake.guard, Faults(f"discard the uploads of {namespace}"):
            base = (*self._namespaces.look(namespace).names, UPLOADS)
            for upload in await self._intake.threads.run(lambda: self._intake.tree.names(base)):
                await self._intake.threads.run(
                    lambda upload=upload: self._remove((*base, upload))  # type: ignore[misc]
                )

    def _remove(self, base: tuple[str, ...]) -> None:
        tree = self._intake.tree
        for name in tree.names(base):
            tree.remove((*base, name), keep=len(base) - 1)
        with suppress(FileNotFoundError):
            tree.prune(base, keep=len(base) - 1)


async def _never(_: bytes) -> None:
    raise AssertionError("parts are files")
