"""Deletes blocks of private rows that were replaced, minutes after that (docs/design/online-deletion.md).

Each replaced row is judged twice:

1. *Soon*: its token has no note of a copy, and its branch still names the token, so that no note can have been dropped.
   From then on no new reference to the address can appear.
2. *After the delay*, which is for readers: no hold and no collection is under way, and the path does not hold the
   address. With a journal, the event that replaced the row is in the bucket. Then the block is deleted.

The queue is bounded and in memory. Blocks of rows that it loses or keeps are left to the
garbage collection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from tarn.block.port import BlockStore
from tarn.core.branch import Branch
from tarn.core.clock import Clock
from tarn.core.collection import Collection, Phase
from tarn.core.entry import address_of
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import physical_path
from tarn.kv.keys import copied_note, path_key
from tarn.kv.port import Kv
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.private_rows import Replaced, ReplacedRows
from tarn_graveler.journal.draining import Drain
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.collections import CollectionRecords

__all__ = ["OFFLINE", "OUTCOMES", "OnlineDeletion", "OnlineSettings"]

OUTCOMES = ("queued", "deleted", "copied", "not-replaced", "token-left", "failed", "queue-full")
"""The keys of `ReplacedRows.outcomes`: `queued`, then the outcome of the row. `queue-full` rows were not queued."""

_POLL_SECONDS = 1.0
_AT_ONCE = 100
"""Rows of one look, and blocks of one deletion."""
_DELETIONS_PER_STEP = 500
_HELD_SECONDS = 60.0
"""How long rows of a repository wait after a look that met a hold or a collection."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OnlineSettings:
    """The settings of online deletion.

    Attributes:
        is_enabled: whether blocks are deleted online. Must be equal in all replicas.
        delay_seconds: time between the end of a private row and the deletion of its block; longer than any GET.
        poll_seconds: pause between two steps.
        held_seconds: how long rows wait after a look that met a hold or a collection.
    """

    is_enabled: bool = False
    delay_seconds: float = 600.0
    poll_seconds: float = _POLL_SECONDS
    held_seconds: float = _HELD_SECONDS


OFFLINE = OnlineSettings()
"""No block is deleted online."""


class OnlineDeletion:
    """Judges the replaced rows of one replica, and deletes their blocks.

    Attributes:
        queue: the rows; its `outcomes` count them.
    """

    def __init__(
        self,
        kv: Kv,
        branches: Branches,
        layers: Layers,
        collections: CollectionRecords,
        queue: ReplacedRows,
        blocks: BlockStore,
        clock: Clock,
        settings: OnlineSettings,
        drain: Drain | None = None,
    ) -> None:
        self._drain = drain
        self._kv = kv
        self._branches = branches
        self._layers = layers
        self._collections = collections
        self._blocks = blocks
        self._clock = clock
        self._settings = settings
        self.queue = queue

    async def run(self) -> None:
        """Judges and deletes until cancelled; logs errors. Rows of a look that failed are kept."""
        while True:
            await self._clock.sleep(self._settings.poll_seconds)
            try:
                await self.step()
            except TarnError as error:
                _log.warning("online deletion failed", reason=error.reason, error=error.message)

    async def step(self) -> int:
        """Judges the replaced rows, and deletes the blocks that are due; returns how many blocks it deleted.

        Raises:
            TarnError: the stores' errors. The rows of the look or deletion that failed are kept.
        """
        while self.queue.new:
            await self._look(self._taken(self.queue.new, float("inf")))
        deleted = 0
        while deleted < _DELETIONS_PER_STEP:
            due = self._taken(self.queue.waiting, self._clock.monotonic())
            if not due:
                break
            deleted += await self._delete(due)
        return deleted

    def _taken(
        self, queue: deque[tuple[Replaced, float]], until: float
    ) -> list[tuple[Replaced, float]]:
        """Takes the oldest rows of one branch that are due; the others stay in their order."""
        taken: list[tuple[Replaced, float]] = []
        while queue and len(taken) < _AT_ONCE:
            row, due = queue[0]
            if due > until or (taken and row.name != taken[0][0].name):
                break
            taken.append(queue.popleft())
        return taken

    def _keep(self, rows: Iterable[object], reason: str) -> None:
        self.queue.outcomes[reason] += sum(1 for _ in rows)

    # ---- the first look

    async def _look(self, rows: Sequence[tuple[Replaced, float]]) -> None:
        """Judges whether nothing else can refer to the addresses, now and ever."""
        try:
            kept = await self._reason_to_keep([row for row, _ in rows])
        except TarnError:
            self._keep(rows, "failed")
            raise
        for row, reason in zip(rows, kept, strict=True):
            if reason:
                self.queue.outcomes[reason] += 1
            else:
                self.queue.waiting.append(row)

    async def _reason_to_keep(self, rows: Sequence[Replaced]) -> list[str]:
        """Returns for each row of one branch why its block must stay; empty if nothing refers to it."""
        found: dict[Replaced, str] = {}
        for token in dict.fromkeys(row.token for row in rows):
            mine = [row for row in rows if row.token == token]
            partition = self._layers.partition(mine[0].name, token)
            keys = [copied_note(row.address) for row in mine] + [path_key(row.path) for row in mine]
            values = await self._kv.get_many(partition, keys)
            notes, newest = values[: len(mine)], values[len(mine) :]
            for row, note, now in zip(mine, notes, newest, strict=True):
                if note is not None:
                    found[row] = "copied"
                elif now is None or address_of(now.value) == row.address:
                    found[row] = "not-replaced"
        record = await self._record(rows[0].name)
        # After the notes: they are dropped only with a token that the record does not name any more.
        named = () if record is None else record.tokens
        return [found.get(row, "") if row.token in named else "token-left" for row in rows]

    async def _record(self, name: BranchName) -> Branch | None:
        """Returns the record of a branch, read now; None if there is none."""
        try:
            return (await self._branches.fresh(name)).branch
        except TarnError as error:
            if error.kind is Kind.NOT_FOUND:
                return None
            raise

    # ---- the second look, and the deletion

    async def _delete(self, rows: Sequence[tuple[Replaced, float]]) -> int:
        """Deletes the blocks of rows of one branch, after a second look; returns how many."""
        name = rows[0][0].name
        try:
            collection = await self._collections.read(name.repository)
            if _must_wait(collection, self._clock.now_us()):
                again = self._clock.monotonic() + self._settings.held_seconds
                self.queue.waiting.extend((row, again) for row, _ in rows)
                return 0
            if self._drain is not None:
                replaced_at = max(due for _, due in rows) - self._settings.delay_seconds
                await self._drain.before_deletion(name.repository, replaced_at)
            free = await self._not_at_their_paths(name, [row for row, _ in rows])
            paths = [physical_path(row.address) for row in free]
            await self._blocks.delete_many(name.repository.storage_namespace, paths)
        except TarnError:
            self._keep(rows, "failed")
            raise
        self._keep(free, "deleted")
        return len(free)

    async def _not_at_their_paths(
        self, name: BranchName, rows: Sequence[Replaced]
    ) -> list[Replaced]:
        """Returns the rows whose address is not the one that their path holds now. No write can bring the address back;
        this look is a safety net against mistakes.
        """
        record = await self._record(name)
        if record is None:
            return list(rows)
        found = await self._layers.find(name, record, [row.path for row in rows])
        free = []
        for row, now in zip(rows, found, strict=True):
            if now.packed is not None and address_of(now.packed) == row.address:
                self.queue.outcomes["not-replaced"] += 1
                _log.error(
                    "a path holds an address that was replaced: its block is kept",
                    repository=name.repository.repository_id,
                    branch=name.branch_id,
                    address=row.address.hex(),
                )
            else:
                free.append(row)
        return free


def _must_wait(collection: Collection, now_us: int) -> bool:
    """Whether a hold, or a run of a collection, may have read the rows as roots."""
    is_running = collection.phase is not Phase.IDLE and now_us < collection.lease_until_us
    return is_running or now_us < collection.hold_until_us
