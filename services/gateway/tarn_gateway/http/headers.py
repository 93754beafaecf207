"""Request headers: case-insensitive, in order, with duplicates.

Values are the received bytes decoded as Latin-1, which loses nothing: `value.encode("latin-1")` gives the
bytes that the client sent, as a signature needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["Headers"]

_begins_with_amz = re.compile("x-amz-").match


class Headers(dict[str, str]):
    """The headers of one request: values by lower-case name; those of duplicates are joined with `,` (RFC 9110 §5.3).

    It is a dict, because a request looks up some thirty headers. It is not changed after it was made.

    Args:
        pairs: `(name, value)` in the order received; names in lower case.

    Attributes:
        amz_names: the distinct names that begin with `x-amz-`, which several checks use.
    """

    __slots__ = ("amz_names", "pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = list(pairs)
        dict.__init__(self, self.pairs)
        if len(self) != len(self.pairs):
            self.clear()
            for name, value in self.pairs:
                self[name] = f"{self[name]},{value}" if name in self else value
        self.amz_names = list(filter(_begins_with_amz, self))

    def text(self, name: str) -> str:
        """Returns the value of a lower-case name, empty if absent."""
        return self.get(name, "")

    def with_prefix(self, prefix: str) -> Sequence[tuple[str, str]]:
        """Returns `(name, joined value)` of the names that begin with a lower-case prefix."""
        names = self.amz_names if prefix.startswith("x-amz-") else self
        # Mostly there is none, which one search tells instead of one for each name.
        if prefix not in "\n".join(names):
            return ()
        return [(name, self[name]) for name in names if name.startswith(prefix)]

    def __repr__(self) -> str:
        # Never the values: signatures are among them.
        return f"Headers({len(self.pairs)} lines: {', '.join(self)})"
