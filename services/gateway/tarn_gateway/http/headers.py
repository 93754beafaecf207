"""Request headers: case-insensitive, in order, with duplicates.

Values are the received bytes decoded as Latin-1, which loses nothing: `value.encode("latin-1")` gives the
bytes that the client sent, as a signature needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["Headers"]


class Headers:
    """The headers of one request.

    Args:
        pairs: `(name, value)` in the order received; names in lower case.

    Attributes:
        amz_names: the distinct names that begin with `x-amz-`, which several checks use.
        by_name: the values by lower-case name; those of duplicates are joined with `,` (RFC 9110 §5.3).
    """

    __slots__ = ("amz_names", "by_name", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = list(pairs)
        joined = dict(self.pairs)
        if len(joined) != len(self.pairs):
            joined.clear()
            for name, value in self.pairs:
                joined[name] = f"{joined[name]},{value}" if name in joined else value
        self.by_name = joined
        self.amz_names = [name for name in joined if name.startswith("x-amz-")]

    def get(self, name: str, default: str | None = None) -> str | None:
        """Returns the value of a lower-case name; values of duplicates are joined with `,` (RFC 9110 §5.3)."""
        return self.by_name.get(name, default)

    def text(self, name: str) -> str:
        """Returns the value of a lower-case name, empty if absent."""
        return self.by_name.get(name, "")

    def with_prefix(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yields `(name, joined value)` of the names that begin with a lower-case prefix."""
        names = self.amz_names if prefix.startswith("x-amz-") else self.by_name
        return ((name, self.by_name[name]) for name in names if name.startswith(prefix))

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def __iter__(self) -> Iterator[str]:
        """Iterates over the distinct names."""
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def __repr__(self) -> str:
        return f"Headers({len(self.pairs)} lines: {', '.join(self.by_name)})"
