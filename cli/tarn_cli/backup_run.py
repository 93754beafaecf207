"""The stores and the progress of one `tarn backup` command."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn

from tarn.block.opening import open_blocks, open_blocks_to_read
from tarn.config import Config
from tarn.fsck.backups import check_backup
from tarn.fsck.finding import Finding
from tarn.fsck.progress import CheckProgress
from tarn.kv.opening import open_kv, open_store
from tarn.kv.port import ListingKv
from tarn.rpc.process.log import logging_to
from tarn.rpc.process.standalone import log_config
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.snapshot.files.bucket import BucketTarget
from tarn.snapshot.files.stored import StoredSnapshot
from tarn.snapshot.files.target import FolderTarget, Target
from tarn.snapshot.store import OpenStore, RateLimiter, TransferOptions, TransferProgress
from tarn_cli.bars import PlainColumn, bar
from tarn_cli.exits import CliError, Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.kv_place import about, secret_of
from tarn_cli.session import Session
from tarn_cli.ticking import ticking

__all__ = ["BackupRun", "run_backup"]

T = TypeVar("T")

_STANDARD_ERROR: Final = "="
_S3: Final = "s3://"


@dataclass(frozen=True, slots=True)
class BackupRun:
    """The resources of one running command.

    Attributes:
        config: of the services.
        clock: the clock of the system.
        ids: makes ids.
        show: shows a phase, and how much of it is done.
    """

    config: Config
    clock: SystemClock
    ids: SystemIds
    show: Callable[[str, int, int, int], None]
    stack: AsyncExitStack

    async def target(self, where: str) -> Target:
        """Opens the place of the backups: a folder, or `s3://BUCKET/PREFIX`.

        Raises:
            CliError: USAGE: it is neither.
        """
        if not where.startswith(_S3):
            if "://" in where:
                raise CliError(Exit.USAGE, f"{where} is neither a folder nor s3://BUCKET/PREFIX")
            return FolderTarget(Path(where))
        if self.config.blockstore.type != "s3":
            text = f"{where} is in a bucket, and the configuration names no S3 server"
            raise CliError(Exit.USAGE, text, "blockstore.type: s3, or give a folder")
        target = BucketTarget(await open_blocks(self.config, self.clock), where)
        self.stack.push_async_callback(target.close)
        return target

    async def store_in_use(self) -> ListingKv:
        """Opens the metadata store beside running services.

        Raises:
            CliError: NOT_FOUND: there is none.
        """
        file = self.config.metadata.db.embedded.file
        if self.config.metadata.db.type == "embedded" and not file.exists():
            raise CliError(Exit.NOT_FOUND, f"there is no metadata store at {file}")
        kv = await open_kv(self.config, self.clock, self.ids)
        self.stack.push_async_callback(kv.close)
        return kv

    async def store_alone(self) -> OpenStore:
        """Opens the metadata store of the configuration; no other process on this machine may have it open."""
        kv = await open_store(self.config, self.clock, self.ids, alone=True)
        self.stack.push_async_callback(kv.close)
        is_shared = self.config.metadata.db.type != "embedded"
        return OpenStore(kv, self.config.installation.id, about(self.config), is_shared)

    def transfer(self, concurrency: int = 1) -> TransferOptions:
        """Options of a backup or a transfer that shows its progress."""

        def report(done: TransferProgress) -> None:
            self.show(done.phase, done.units, done.units_total, done.rows)

        return TransferOptions(self.clock, RateLimiter(self.clock), concurrency, report)

    async def findings(self, backup: StoredSnapshot, concurrency: int) -> list[Finding]:
        """Checks a backup beside the blocks of the configuration; see `check_backup`."""
        blocks = await open_blocks_to_read(self.config, self.clock)
        self.stack.push_async_callback(blocks.close)
        progress = CheckProgress()

        began = progress.phase

        def show() -> None:
            if progress.phase != began:  # the restore shows its own progress
                phase, total = f"fsck: {progress.phase}", progress.total or 0
                self.show(phase, progress.done, total, progress.requests)

        async with ticking(show, self.clock):
            return await check_backup(
                backup, blocks, self.ids, self.clock, self.transfer(concurrency), progress
            )

    def check_secret(self, backup: StoredSnapshot) -> None:
        """Refuses a configuration without the secret that users' keys of a backup are encrypted with.

        Raises:
            CliError: CONFLICT.
        """
        # Imported only here: no other backup command needs the ciphers.
        from tarn_auth.secret_box import SecretBox

        needed = backup.manifest.encryption_key_ids
        if not needed:
            return
        secret = secret_of(self.config)
        hint = (
            f"set installation.secret, or copy the file `secret` of the old data folder to {self.config.data_dir}; "
            "--without-secret restores anyway, and no user can log in until it is there"
        )
        if secret is None:
            text = "the installation's secret is not configured here, and no backup holds it"
            raise CliError(Exit.CONFLICT, text, hint)
        if not set(SecretBox((secret,), os.urandom).key_ids) & set(needed):
            text = "the installation's secret that is configured here is not the one of the backup"
            raise CliError(Exit.CONFLICT, text, hint)


def run_backup(session: Session, config: Config, work: Callable[[BackupRun], Awaitable[T]]) -> T:
    """Runs `work` with progress on standard error; SIGTERM cancels it."""
    clock = SystemClock()

    async def opened(show: Callable[[str, int, int, int], None]) -> T:
        task = asyncio.current_task()
        assert task is not None, "runs in a task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with AsyncExitStack() as stack:
            return await work(BackupRun(config, clock, SystemIds(clock), show, stack))

    # Standard output is for the result alone.
    log = replace(log_config(config), output=_STANDARD_ERROR)
    with logging_to(log), _bar(session) as show:
        return run_interruptibly(opened(show))


@contextmanager
def _bar(session: Session) -> Iterator[Callable[[str, int, int, int], None]]:
    columns = (BarColumn(), MofNCompleteColumn(), PlainColumn("{task.fields[extra]:,} rows"))
    with bar(session.output.progress_console, "opening", *columns) as shown:
        yield shown.show
