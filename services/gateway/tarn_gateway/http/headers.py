"""Request headers: case-insensitive, in order, with duplicates.

Values are the received bytes decoded as Latin-1, which loses nothing: `value.encode("latin-1")` gives the
bytes that the client sent, as a signature needs them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

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

    __slots__ = ("_repeated", "amz_names")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        pairs = list(pairs)
        dict.__init__(self, pairs)
        # The pairs, if a name is among them twice.
        self._repeated: list[tuple[str, str]] | None = None
        if len(self) != len(pairs):
            self._repeated = pairs
            self.clear()
            for name, value in pairs:
                self[name] = f"{self[name]},{value}" if name in self else value
        self.amz_names = list(filter(_begins_with_amz, self))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """`(name, value)` in the order received, one for each line."""
        return list(self.items()) if self._repeated is None else self._repeated

    def changed(self, values: Mapping[str, str]) -> Headers:
        """Returns these headers, each of which is one line, with other values of some of them."""
        assert self._repeated is None, "only distinct headers can be changed"
        made = Headers.__new__(Headers)
        made.update(self)
        made.update(values)
        made._repeated, made.amz_names = None, self.amz_names  # noqa: SLF001 - of its own class
        return made

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
