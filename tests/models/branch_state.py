"""The state of the model of the branch protocol: one branch with one key (see `branch_model`).

A value of the key is the number of the process that wrote it; 0 is the absent key at the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["GUARDS", "StoreState", "Late", "Local", "Record", "Rules", "Step"]

GUARDS = {
    # Rule 1: writes.
    "re-check": "a write counts only if the record, read again, still names its token",
    "issued after": "that read is sent after the row became durable",
    # Rule 2: reads.
    "read compares": "a read by a cached record counts only if a fresh record has the same layers",
    "waits D": "a token is dropped so late that no read by a record that named it still runs",
    # Rule 3: deletes and conditional writes.
    "delete verifies": "a delete reads the record again after its last layer",
    "delete compares all": "it compares all layers, not only the staging token",
    "sealed tombstone": "a tombstone in a sealed token is no reason to write none",
    "delete marks": "a delete writes a tombstone and never removes a row",
    "condition verifies": "a conditional write reads the record again after its last layer",
    "condition compares": "it compares-and-sets its row over the one that it read",
    "own row": "its own row in a sealed token or a commit is written again to the staging token",
    "moved is unknown": "its own row outside the staging token does not count once the head was moved",
    "written is unknown": "once its row was there, a refusal is told as an unknown outcome",
    "delete-if compares": "a conditional delete compares-and-sets its tombstone over the row that it judged",
    "delete-if names its operation": "the tombstone of another conditional delete is not its own",
    "delete-if own tombstone": "its own tombstone in a sealed token is written again to the staging token",
    # Rules 4 and 5: commits, and what they drop.
    "seals": "a commit scans tokens that take no acknowledged write any more",
    "finish compares": "the last step of a commit is a compare-and-set",
    "no overlap rule": "after a lost last step a commit is used again only if just newer seals came",
    "looks": "an announced token is dropped only if the record does not name it",
    # Rule 6 and 10: compaction and reset.
    "compaction seals": "a compaction scans tokens that take no acknowledged write any more",
    "compaction compares": "a compaction ends with a compare-and-set on the whole record",
    "compaction gives up": "over another base or other tokens it gives up, and does not publish what it has",
    "compaction keeps seals": "newer sealed tokens stay in the record",
    "base is read": "deletes, conditional writes and reads look into the compacted metarange",
    "taken by commit": "a commit whose tokens are gone looks whether a compacted metarange may hold their rows",
    "commit builds on base": "a commit builds on the compacted metarange if there is one",
    "commit compares base": "a commit whose last step met another compacted metarange builds again",
    "seal keeps base": "a seal keeps the compacted metarange",
    "reset clears base": "a reset forgets the compacted metarange",
    "reset compares": "a reset is a compare-and-set",
    # Rules 6 and 10: the reset of a part.
    "part restores the commit": "under the part the commit's content comes back, not that of the compacted metarange",
    "part keeps the rest": "the sealed rows outside the part go to the compacted metarange",
    "part compares": "it ends with a compare-and-set on the whole record",
    "part computes again": "over another base, the result is computed again",
    "part seals": "it replaces the staging token in its last step",
    "part keeps rows": "that token stays in the record: rows may have come since the seal",
    # Rule 10: erasures.
    "erase judges": "an entry goes only if it is the newest one of its path in the sealed tokens and beneath",
    "erase has no tombstone": "an entry goes in the step that changes the record, and not by a row that may land late",
    "erase excepts the commit": "an entry that the commit has is not discarded",
    # Rules 7 and 9: merge.
    "base is dirty": "a branch whose compacted metarange differs from its commit is dirty",
    "merge seals": "what changes the committed content seals the staging token in the same step",
    "merge keeps rows": "that token stays in the record: rows may have come since it was scanned",
    "merge judges again": "under another head, a merge judges its sealed tokens again",
    # Rule 8: unknown outcomes.
    "settles": "an unknown outcome is settled by a read, and not taken for success",
    "late is pending": "a compare-and-set that the settling read does not show may still be applied",
    "recognises": "a repeated last step that fails looks for the operation ids of all attempts",
}


class Record(NamedTuple):
    """The branch record.

    Attributes:
        staging: the token that takes writes.
        sealed: newest first.
        commit: index of the head in `StoreState.commits`.
        base: the key's value in the compacted metarange; None if there is none.
        moves: how often a merge or a reset changed the content beneath the tokens.
        ops: remembered changes: process and stage. Empty unless answers can be lost.
    """

    staging: int = 0
    sealed: tuple[int, ...] = ()
    commit: int = 0
    base: int | None = None
    moves: int = 0
    ops: tuple[tuple[int, str], ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """Returns the uncommitted layers, newest first."""
        return (self.staging, *self.sealed)

    def same_layers(self, other: Record) -> bool:
        """Whether readers of both records read the same layers."""
        return self[:4] == other[:4]


class Late(NamedTuple):
    """A compare-and-set that waits at a coordinator; its sender has no answer."""

    before: Record
    after: Record


class StoreState(NamedTuple):
    """The stored state, and the answers to clients.

    Attributes:
        tokens: the key's row in each token; None without one.
        commits: for each commit the key's value, the process that made it, and its first parent.
        announced: tokens on the drop list.
        late: compare-and-sets that may still be applied.
        losable: number of answers of compare-and-sets that may still be lost.
        published: processes whose commit was a head.
        began: for each started write, the writes that were acknowledged before.
        acked: acknowledged writes.
        refused: writes whose client was told that surely nothing was done.
        excused: writes that a reset may have removed. For an erasure: the entry, and what it had overwritten.
        blind: conditional writes with a row above an acknowledged value that they have not judged.
        covered: for conditional writes, the value that their row replaced in its token, or that lay beneath it when
            the token was folded into a listing.
    """

    record: Record = Record()
    tokens: tuple[int | None, ...] = (None,)
    commits: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    announced: frozenset[int] = frozenset()
    late: tuple[Late, ...] = ()
    losable: int = 0
    published: frozenset[int] = frozenset()
    began: tuple[tuple[int, frozenset[int]], ...] = ()
    acked: frozenset[int] = frozenset()
    refused: frozenset[int] = frozenset()
    excused: frozenset[int] = frozenset()
    blind: frozenset[int] = frozenset()
    covered: tuple[tuple[int, int], ...] = ()

    def committed(self, record: Record) -> int:
        """Returns the key's value below the tokens of a record."""
        return self.commits[record.commit][0] if record.base is None else record.base

    def visible(self) -> int:
        """Returns the value for a reader that reads everything at one moment."""
        for token in self.record.tokens:
            row = self.tokens[token]
            if row is not None:
                return row
        return self.committed(self.record)

    def with_record(self, record: Record) -> StoreState:
        """Changes the record. A late compare-and-set that expects another record will never be applied."""
        late = tuple(each for each in self.late if each.before == record)
        published = self.published | {self.commits[record.commit][1]}
        return self._replace(record=record, late=late, published=published)

    def with_row(self, token: int, row: int | None) -> StoreState:
        """Changes the key's row in one token."""
        return self._replace(tokens=(*self.tokens[:token], row, *self.tokens[token + 1 :]))

    def with_token(self) -> tuple[StoreState, int]:
        """Adds a token that no record names yet."""
        return self._replace(tokens=(*self.tokens, None)), len(self.tokens)

    def with_commit(self, value: int, maker: int, parent: int) -> tuple[StoreState, int]:
        """Adds a commit that no branch names yet."""
        return self._replace(commits=(*self.commits, (value, maker, parent))), len(self.commits)

    def beneath(self, tokens: tuple[int, ...], record: Record, own: int) -> int:
        """Returns the newest value of some layers that `own` did not write; below a commit is its parent."""
        covered = dict(self.covered)
        for token in tokens:
            row = self.tokens[token]
            if row is not None and row != own:
                return row
            if row == own and own in covered:
                return covered[own]
        if record.base not in (None, own):
            return self.committed(record)
        commit = record.commit
        value, _, parent = self.commits[commit]
        if own in (record.base, value) and own in covered:
            return covered[own]
        while value == own and parent != commit:
            commit = parent
            value, _, parent = self.commits[commit]
        return value

    def covers(self, write: int, value: int) -> StoreState:
        """Remembers the value that the row of a conditional write hides for ever."""
        return self._replace(covered=tuple(sorted({**dict(self.covered), write: value}.items())))

    def folds(self, write: int, record: Record, rules: Rules) -> StoreState:
        """Remembers what lies beneath the row of a conditional write that the sealed tokens of a record bring to a
        listing.
        """
        if not rules.is_create(write) or self.committed(record) == write:
            return self
        return self.covers(write, self.beneath(record.sealed, record, write))

    def begins(self, write: int) -> StoreState:
        """Records the begin of a write."""
        return self._replace(began=(*self.began, (write, self.acked)))

    def acknowledges(self, write: int) -> StoreState:
        """Acknowledges a write."""
        return self._replace(acked=self.acked | {write})


class Local(NamedTuple):
    """The state of one process.

    Attributes:
        record: the record that it works with.
        fresh: a newer record that it has read.
        at: number of layers that it has read.
        value: the newest value that it found.
        row: the row that it found in the staging token.
        acked: writes that were acknowledged when it began; for the reset of a part, those that had begun
            when its seal was confirmed.
        seen: for a read, the tokens that the record named when it began, and how many tokens there were. For a
            commit, its sealed tokens and its head when its seal was confirmed.
        wrote: whether its row is in a token.
        made: its commit without an answer.
        judged: `moves` of the record by which a conditional write was judged.
    """

    kind: str
    number: int
    pc: str = "begin"
    record: Record = Record()
    fresh: Record | None = None
    at: int = 0
    value: int | None = None
    row: int | None = None
    acked: frozenset[int] = frozenset()
    seen: tuple[tuple[int, ...], int] = ((), 0)
    wrote: bool = False
    made: int | None = None
    judged: int = 0
    tries: int = 0

    def ends(self) -> Local:
        """Returns the final state; it remembers nothing, so that equal states compare equal."""
        return Local(self.kind, self.number, "end")


Step = tuple[str, StoreState, Local, str | None]
"""A step: its description, the state after it, and the promise that the answer breaks (None: none)."""


class Rules:
    """The active guards, and the bounds.

    Args:
        kinds: the kind of each process; the first has number 1.
        off: disabled guards.
        tries: how often a process may begin again.
    """

    def __init__(self, kinds: tuple[str, ...], off: frozenset[str], tries: int) -> None:
        assert off <= set(GUARDS), f"no such guard: {off - set(GUARDS)}"
        self.tries = tries
        self._kinds = kinds
        self._off = off
        deletes = {n for n, kind in enumerate(kinds, 1) if kind.removeprefix("then ") == "delete"}
        self._deletes_if = {
            n for n, kind in enumerate(kinds, 1) if kind.removeprefix("then ") == "delete if"
        }
        self._absent = {0} | deletes | self._deletes_if
        self._creates = {
            n for n, kind in enumerate(kinds, 1) if kind.removeprefix("then ") == "create"
        }

    def has(self, guard: str) -> bool:
        """Whether a guard is on."""
        return guard not in self._off

    def without(self, guard: str) -> Rules:
        """Returns the same rules with one guard off."""
        return Rules(self._kinds, self._off | {guard}, self.tries)

    def is_absent(self, value: int) -> bool:
        """Whether this value means that there is no object."""
        return value in self._absent

    def erased_by(self, erasure: int) -> int:
        """Returns the write whose entry an erasure discards: that of the last put before it in the scenario."""
        kinds = enumerate(self._kinds[: erasure - 1], 1)
        return max(number for number, kind in kinds if kind.removeprefix("then ") == "put")

    def deleted_by(self, delete: int) -> int:
        """Returns the value that a conditional delete expects: that of the last write of a value before it."""
        kinds = enumerate(self._kinds[: delete - 1], 1)
        return max(n for n, kind in kinds if kind.removeprefix("then ") in {"put", "create"})

    def is_create(self, write: int) -> bool:
        """Whether this value is that of a conditional write."""
        return write in self._creates

    def is_delete_if(self, write: int) -> bool:
        """Whether this is a conditional delete."""
        return write in self._deletes_if

    def is_legal(self, lake: StoreState, value: int, acked: frozenset[int]) -> bool:
        """Whether a read may return a value if `acked` was acknowledged before it began (I1).

        It may if some write of the same content did not end before one of those began.
        """
        over = dict(lake.began)
        counted = acked - lake.excused
        for write in (0, *over):
            if write != value and not (self.is_absent(write) and self.is_absent(value)):
                continue
            if all(each == write or (write and write not in over[each]) for each in counted):
                return True
        return False

    def _deleted_twice(self, lake: StoreState) -> frozenset[int]:
        """Returns the acknowledged conditional deletes of a value that was acknowledged before each of them began.

        Before that, the value may come back, because its write may have to write it again. Two deletes of a scenario
        expect the same value.
        """
        over = dict(lake.began)
        winners = lake.acked & self._deletes_if
        return frozenset(each for each in winners if self.deleted_by(each) in over[each])

    def broken(self, lake: StoreState) -> str | None:
        """Returns the promise that a state breaks."""
        shown = lake.visible()
        if not self.is_legal(lake, shown, lake.acked):
            return f"lost: the branch shows {shown}; acknowledged: {set(lake.acked)}"
        if len(winners := lake.acked & self._creates) > 1 and not self._deletes_if:
            return f"two winners: {set(winners)} were both acknowledged on an absent key"
        if len(winners := self._deleted_twice(lake)) > 1:
            return f"two winners: {set(winners)} were both acknowledged on one value"
        if winners := lake.acked & lake.blind:
            return f"two winners: {set(winners)} was acknowledged over a value that it had not seen"
        for value in (shown, lake.commits[lake.record.commit][0]):
            if value in lake.refused:
                return f"refused: {value} was told that nothing was done, and it is there"
        if told := lake.refused & lake.published:
            return (
                f"refused: {set(told)} was told that no commit was made, and it is in the history"
            )
        return None


def dropped(
    lake: StoreState, rules: Rules, locals_: tuple[Local, ...]
) -> Iterator[tuple[str, StoreState]]:
    """Yields the possible steps of the cleaner (rule 5)."""
    named = lake.record.tokens if rules.has("looks") else ()
    for token in lake.announced:
        if lake.tokens[token] is None or token in named:
            continue
        if rules.has("waits D") and any(
            me.kind == "read" and me.pc == "reads" and (token in me.seen[0] or token >= me.seen[1])
            for me in locals_
        ):
            continue
        yield f"drops T{token}", lake.with_row(token, None)


def applied_late(lake: StoreState) -> Iterator[tuple[str, StoreState]]:
    """Yields compare-and-sets that a coordinator applies after their senders have settled them (rule 8)."""
    for late in lake.late:
        if late.before == lake.record:
            yield "a late compare-and-set is applied", lake.with_record(late.after)
