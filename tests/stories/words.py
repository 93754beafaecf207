"""Names and sentences for what the store holds: T1 is a token, C1 a commit, L1 a compacted listing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.entry import is_tombstone, size_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId, TokenId

__all__ = ["Names", "answer_of", "listed", "row"]


class Names:
    """Readable names of ids, in the order in which they appear."""

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._counts: dict[str, int] = {}

    def _name(self, letter: str, identity: object, first: int = 1) -> str:
        if identity not in self._names:
            number = self._counts.get(letter, first)
            self._counts[letter] = number + 1
            self._names[identity] = f"{letter}{number}"
        return self._names[identity]

    def token(self, token_id: TokenId) -> str:
        """T1, T2, …"""
        return self._name("T", token_id)

    def commit(self, commit_id: CommitId) -> str:
        """C0, C1, …: C0 is the empty commit with which a repository begins."""
        return self._name("C", commit_id, first=0)

    def listing(self, metarange_id: MetarangeId) -> str:
        """L1, L2, …"""
        return self._name("L", metarange_id)

    def _layer(self, token: Token) -> str:
        name = self.token(token.token_id)
        return f"{name} (conditional)" if token.kind is TokenKind.CONDITIONAL else name

    def layers(self, branch: Branch) -> str:
        """The layers of a branch, newest first: what takes writes, what is sealed, what is committed."""
        # Older layers appeared earlier.
        commit = self.commit(branch.commit_id)
        tokens = [self._layer(token) for token in reversed(branch.tokens)]
        base = [commit]
        if branch.compacted_metarange_id is not None:
            base = [f"{self.listing(branch.compacted_metarange_id)} (on {commit})"]
        return " over ".join([*reversed(tokens), *base])

    def in_words(self, text: str) -> str:
        """Replaces ids in a text by their names."""
        for identity, name in self._names.items():
            if isinstance(identity, str):
                text = text.replace(identity, name)
        return text


def row(path: str, packed: bytes) -> str:
    """`orders = 1`, or `a tombstone of orders`. An object is known by its size."""
    return f"a tombstone of {path}" if is_tombstone(packed) else f"{path} = {size_of(packed)}"


_ANSWERS: Final = {
    Reason.PRECONDITION_FAILED: "refused: the condition does not hold (412)",
    Reason.ENTRY_NOT_FOUND: "refused: there is no such object (404)",
    Reason.BRANCH_NOT_FOUND: "refused: there is no such branch (404)",
    Reason.ADDRESS_TOO_OLD: "refused: its block is too old to be referred to anew",
    Reason.BRANCH_DIRTY: "refused: the branch has uncommitted changes",
}


def answer_of(error: TarnError, names: Names) -> str:
    """What a failed call answers."""
    if error.kind is Kind.UNKNOWN_OUTCOME:
        return "the outcome is unknown (503)"
    if error.reason is Reason.NOTHING_TO_COMMIT:
        return f"refused: everything is in {names.commit(CommitId(error.metadata['commit_id']))}"
    return _ANSWERS.get(error.reason) or f"refused: {names.in_words(error.message)}"


def listed(sizes: Sequence[tuple[str, int]]) -> str:
    """A listing in one line."""
    return ", ".join(f"{path} = {size}" for path, size in sizes) or "nothing"
