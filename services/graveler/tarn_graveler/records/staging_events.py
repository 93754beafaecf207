"""Counts the effects of this replica's writes, commits, resets and compactions on staging tokens, for compactors.

Counts are totals per token since the start of the replica. A watcher states the sequence of the last change that it
knows, and gets the tokens that changed since. So there is no queue for each watcher, a lost answer is repeated, and a
slow watcher costs no memory. The counts are hints: a compactor measures a branch before it acts.

The hot path (`wrote`) finds a token in a dict and adds to its totals, below one microsecond. Changes get their
sequence only when a watcher asks. At most `TOKENS_MAX` tokens are remembered; the ones that changed least recently are
forgotten first, and a watcher that missed one of them is told (`Changes.is_incomplete`).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from tarn.core.branch import Branch, removed_tokens
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import TokenId

__all__ = ["COALESCE_SECONDS", "PAGE_MAX", "TOKENS_MAX", "Changes", "StagingEvents", "TokenTally"]

TOKENS_MAX = 10_000
PAGE_MAX = 5_000
"""Most tokens of one answer."""
COALESCE_SECONDS = 0.2
"""How long changes are gathered before a watcher gets them."""
_WATCHERS_MAX = 64
_FORGET_SHARE = 10


class TokenTally:
    """The totals of one token at this replica.

    Attributes:
        size_bytes: bytes of paths and entries.
        rows_read: rows of all layers that listings read while this was the staging token.
        rows_returned: entries and common prefixes that these listings returned.
        is_committed: the head moved when the token was removed.
        sequence: number of the last change that a watcher may know; 0 before the first.
        is_dirty: changed since `sequence` was given.
    """

    __slots__ = (
        "branch_id",
        "is_committed",
        "is_dirty",
        "is_removed",
        "is_sealed",
        "repository_id",
        "rows",
        "rows_read",
        "rows_returned",
        "sequence",
        "size_bytes",
        "token_id",
        "tombstones",
    )

    def __init__(self, repository_id: str, branch_id: str, token_id: TokenId) -> None:
        self.repository_id = repository_id
        self.branch_id = branch_id
        self.token_id = token_id
        self.rows = 0
        self.tombstones = 0
        self.size_bytes = 0
        self.rows_read = 0
        self.rows_returned = 0
        self.is_sealed = False
        self.is_removed = False
        self.is_committed = False
        self.sequence = 0
        self.is_dirty = False


@dataclass(frozen=True, slots=True)
class Changes:
    """An answer to a watcher.

    Attributes:
        tokens: the changed tokens, in the order of their last changes.
        sequence: the number that the watcher states in its next request.
        is_incomplete: changes that the watcher does not know were forgotten.
    """

    tokens: list[TokenTally]
    sequence: int
    is_incomplete: bool


class StagingEvents:
    """The totals of all tokens that changed lately at this replica.

    Args:
        ids: names this run of the replica, when the first watcher comes.
        clock: measures the pause in which changes are gathered.
        tokens_max: most tokens that are remembered.
    """

    def __init__(self, ids: IdSource, clock: Clock, tokens_max: int = TOKENS_MAX) -> None:
        self._ids = ids
        self._start_id = b""
        self._clock = clock
        self._tokens_max = tokens_max
        # In the order of `sequence`, except for dirty ones.
        self._tallies: OrderedDict[TokenId, TokenTally] = OrderedDict()
        self._dirty: list[TokenTally] = []
        self._changed = asyncio.Event()
        self._sequence = 0
        self._forgotten = 0
        self._watchers = 0
        self._closed = False

    @property
    def start_id(self) -> bytes:
        """Identifies this run of the replica."""
        if not self._start_id:
            self._start_id = self._ids.nonce()
        return self._start_id

    # ---- counting

    def wrote(
        self,
        repository_id: str,
        branch_id: str,
        token_id: TokenId,
        size_bytes: int,
        rows: int = 1,
        tombstones: int = 0,
    ) -> None:
        """Counts acknowledged rows of a token; deletes are rows, too."""
        tally = self._tallies.get(token_id)
        if tally is None:
            tally = self._add(repository_id, branch_id, token_id)
        tally.rows += rows
        tally.tombstones += tombstones
        tally.size_bytes += size_bytes
        if not tally.is_dirty:
            self._mark(tally)

    def listed(self, token_id: TokenId, read: int, returned: int) -> None:
        """Counts a page of a branch's listing: the rows that were read, and the items that were returned.

        Args:
            token_id: the branch's staging token.
            read: rows of all layers.
            returned: entries and common prefixes.
        """
        tally = self._tallies.get(token_id)
        if tally is None:
            return  # no write since the start: nothing that a compactor could improve by these counts
        tally.rows_read += read
        tally.rows_returned += returned
        if not tally.is_dirty:
            self._mark(tally)

    def listed_rows(self, branch: Branch) -> tuple[int, int]:
        """Returns the rows that listings of a branch read and returned here, since its tokens came.

        That is since its last commit, reset or compaction. (0, 0): none was counted.
        """
        found = [self._tallies.get(token.token_id) for token in branch.tokens]
        known = [tally for tally in found if tally is not None]
        return sum(each.rows_read for each in known), sum(each.rows_returned for each in known)

    def changed(self, repository_id: str, branch_id: str, before: Branch, after: Branch) -> None:
        """Counts a confirmed change of a branch record."""
        if before.staging == after.staging and before.sealed == after.sealed:
            return
        known = set(before.sealed)
        for token in after.sealed:
            if token not in known:
                self._of(repository_id, branch_id, token.token_id).is_sealed = True
        is_committed = before.commit_id != after.commit_id
        for token in removed_tokens(before, after):
            tally = self._of(repository_id, branch_id, token.token_id)
            tally.is_removed = True
            tally.is_committed = is_committed

    def removed(self, repository_id: str, branch_id: str, record: Branch) -> None:
        """Counts the removal of a branch with all of its tokens."""
        for token in record.tokens:
            self._of(repository_id, branch_id, token.token_id).is_removed = True

    # ---- watching

    async def watch(self, start_id: bytes, after: int, wait_s: float) -> Changes:
        """Returns what changed since `after`, a sequence of the run `start_id`; waits up to `wait_s` for a change.

        Raises:
            TarnError: EXHAUSTED: too many watchers.
        """
        if self._watchers >= _WATCHERS_MAX:
            text = f"{_WATCHERS_MAX} watchers wait for changes of staging tokens; try again later"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        if start_id != self.start_id:
            after = 0
        if after < self._sequence:
            return self._after(after)
        self._watchers += 1
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
            if wait_s > 0 and not self._closed:
                await self._clock.sleep(COALESCE_SECONDS)
        except TimeoutError:
            pass
        finally:
            self._watchers -= 1
        self._collect()
        return self._after(after)

    def close(self) -> None:
        """Answers all watchers now: the replica stops, and a drain must not wait for them."""
        self._closed = True
        self._changed.set()

    def _of(self, repository_id: str, branch_id: str, token_id: TokenId) -> TokenTally:
        """Returns the tally of a token, which is about to change."""
        tally = self._tallies.get(token_id)
        if tally is None:
            tally = self._add(repository_id, branch_id, token_id)
        if not tally.is_dirty:
            self._mark(tally)
        return tally

    def _add(self, repository_id: str, branch_id: str, token_id: TokenId) -> TokenTally:
        if len(self._tallies) >= self._tokens_max:
            self._forget()
        tally = self._tallies[token_id] = TokenTally(repository_id, branch_id, token_id)
        return tally

    def _mark(self, tally: TokenTally) -> None:
        tally.is_dirty = True
        self._dirty.append(tally)
        self._changed.set()

    def _collect(self) -> None:
        """Gives all changes their sequence."""
        for tally in self._dirty:
            self._sequence += 1
            tally.sequence = self._sequence
            tally.is_dirty = False
            self._tallies.move_to_end(tally.token_id)
        self._dirty.clear()
        if not self._closed:
            self._changed.clear()

    def _forget(self) -> None:
        """Makes room: a tenth of the tokens at once, so that few new tokens pay for it."""
        self._collect()
        for _ in range(max(1, self._tokens_max // _FORGET_SHARE)):
            _, tally = self._tallies.popitem(last=False)
            self._forgotten = tally.sequence

    def _after(self, after: int) -> Changes:
        """Returns the first page of the changes since `after`, among those that have a sequence."""
        found: list[TokenTally] = []
        for tally in reversed(self._tallies.values()):
            if tally.sequence and tally.sequence <= after:
                break
            if tally.sequence:  # else it is new, and only dirty so far
                found.append(tally)
        found.reverse()
        page = found[:PAGE_MAX]
        sequence = page[-1].sequence if len(found) > len(page) else self._sequence
        return Changes(page, sequence, after < self._forgotten)
