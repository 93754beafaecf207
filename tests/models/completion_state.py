"""The state of the model of completions: the branch, its tokens, the upload, and the processes.

Values of the key: see `completion_model`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["UPLOAD", "Attempt", "StoreState", "Local", "Token"]

UPLOAD = -1


@dataclass(frozen=True)
class Token:
    """Rows of one staging token: the key's, and whether the note of the upload is there."""

    row: int | None = None
    note: bool = False


@dataclass(frozen=True)
class Attempt:
    """A token that an attempt was to write to, as recorded in the upload's record."""

    token: int
    by_compare: bool


@dataclass(frozen=True)
class StoreState:
    """Branch record, tokens, upload record, and the answers to clients."""

    staging: int = 0
    sealed: tuple[int, ...] = ()  # newest first
    committed: int = 0
    tokens: tuple[Token, ...] = (Token(),)
    droppable: frozenset[int] = frozenset()
    version: int = 0
    attempts: tuple[Attempt, ...] = ()
    completed: bool = False
    upload_began: bool = False
    upload_seen: bool = False
    acked_before_seen: frozenset[int] = frozenset()
    upload_acked: bool = False
    upload_done_before: frozenset[int] = (
        frozenset()
    )  # PUTs that began after the upload was acknowledged
    acked: frozenset[int] = frozenset()
    acked_before_upload: frozenset[int] = frozenset()
    creations: frozenset[int] = frozenset()
    # Merges. A row of the upload that came too late for a merge's scan vanishes with its token and may be written
    # again, as a PUT's may: both are concurrent with the merge, and not acknowledged.
    merges: frozenset[int] = frozenset()
    replaced_upload: frozenset[int] = (
        frozenset()
    )  # PUTs that were visible after the upload was visible
    undone: frozenset[int] = frozenset()  # those of them that the upload replaced again
    # Whether an acknowledged write was visible after the upload was acknowledged. One that is not acknowledged yet may
    # vanish with a sealed token, and be written again.
    was_covered: bool = False
    before: tuple[tuple[int, frozenset[int]], ...] = ()  # PUT → PUTs that had ended when it began

    def visible(self) -> int:
        """Returns the value for a reader."""
        for token in (self.staging, *self.sealed):
            if (row := self.tokens[token].row) is not None:
                return row
        return self.committed

    def looked_at(self) -> StoreState:
        """Returns the same state, with the values that readers saw."""
        shown = self.visible()
        if self.upload_acked and shown in self.acked and not self.was_covered:
            return replace(self, was_covered=True).looked_at()
        if shown == UPLOAD:
            if not self.upload_seen:
                return replace(self, upload_seen=True, acked_before_seen=self.acked)
            return replace(self, undone=self.replaced_upload & self.acked)
        is_new = shown > 0 and shown not in self.acked_before_seen | self.merges
        if self.upload_seen and is_new:
            return replace(self, replaced_upload=self.replaced_upload | {shown})
        return self

    def with_token(self, number: int, token: Token) -> StoreState:
        """Changes the rows of one token."""
        tokens = self.tokens
        return replace(self, tokens=(*tokens[:number], token, *tokens[number + 1 :]))

    def seal(self) -> StoreState:
        """Adds a new staging token above the old one."""
        return replace(
            self,
            staging=len(self.tokens),
            sealed=(self.staging, *self.sealed),
            tokens=(*self.tokens, Token()),
        )


@dataclass(frozen=True)
class Local:
    """The state of one process."""

    kind: str
    number: int
    pc: str = "begin"
    token: int | None = None
    version: int = 0
    record: tuple[int, tuple[int, ...], int] | None = None
    read: int | None = None
    row: int | None = None
    value: int = UPLOAD
    fate: str = ""
    order: tuple[str, ...] = ()
    landed: frozenset[int] = frozenset()  # tokens that hold a row or note of the upload
    newest_in: int | None = None
    tries_of: tuple[Attempt, ...] = ()
    has_designated: bool = (
        False  # whether it added the last one of these for the row that it will set
    )
    tries: int = 0
