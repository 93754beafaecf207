r"""Patterns of paths: `*`, `**` and `?`, as in .gitignore files, for whole paths and without character classes.

| pattern | matches |
| --- | --- |
| `*` | any characters of one segment, or none; never `/` |
| `?` | one character, not `/` |
| `**/` at the start or after a `/` | any number of whole segments, or none: `a/**/b` matches `a/b` and `a/x/y/b` |
| `**` elsewhere | any characters, also `/`, or none: `raw/**` matches every path that starts with `raw/` |
| `\` and a character | that character: `\*` is a star |
| anything else | itself |

A pattern becomes one regular expression of RE2, which Arrow applies to a whole column. RE2 takes linear time,
whatever the pattern, so a client's pattern cannot stall a server. The standard library has no such matcher:
`fnmatch` lets `*` cross `/`, and `glob.translate` came with Python 3.13.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["GLOB_BYTES_MAX", "check_glob", "glob_of", "match_glob"]

GLOB_BYTES_MAX = 1024
"""Greatest size of a pattern in UTF-8: that of the longest path."""

_TOKEN = re.compile(
    r"(?P<escaped>\\.)|(?P<stars>\*\*+)|(?P<star>\*)|(?P<one>\?)|(?P<text>[^\\*?]+)", re.DOTALL
)


def check_glob(glob: str) -> None:
    """Checks a pattern.

    Raises:
        TarnError: INVALID: the pattern is empty, too long, or ends with a single backslash.
    """
    if not glob or len(glob.encode()) > GLOB_BYTES_MAX:
        raise _invalid(glob, f"it must have 1 to {GLOB_BYTES_MAX} bytes")
    if "".join(found.group() for found in _TOKEN.finditer(glob)) != glob:
        raise _invalid(glob, r"it ends with a backslash; write \\ for the character itself")


def glob_of(path: str) -> str:
    """Returns the pattern that matches this path only."""
    return re.sub(r"[\\*?]", r"\\\g<0>", path)


def match_glob(paths: pa.StringArray, glob: str) -> npt.NDArray[np.bool_]:
    """Returns which paths match a pattern that `check_glob` accepts."""
    if not len(paths):
        return np.zeros(0, np.bool_)
    matched: npt.NDArray[np.bool_] = pc.match_substring_regex(paths, _regex_of(glob)).to_numpy(
        zero_copy_only=False
    )
    return matched


def _regex_of(glob: str) -> str:
    parts = []
    at, end = 0, len(glob)
    while at < end:
        found = _TOKEN.match(glob, at)
        assert found is not None, f"check_glob accepted {glob!r}"
        text, at = found.group(), found.end()
        match found.lastgroup:
            case "stars" if glob[at : at + 1] == "/" and glob[: found.start()][-1:] in ("", "/"):
                parts.append("(?:.*/)?")
                at += 1
            case "stars":
                parts.append(".*")
            case "star":
                parts.append("[^/]*")
            case "one":
                parts.append("[^/]")
            case "escaped":
                parts.append(re.escape(text[1:]))
            case _:
                parts.append(re.escape(text))
    return r"(?s)\A" + "".join(parts) + r"\z"


def _invalid(glob: str, why: str) -> TarnError:
    text = f"the pattern {glob[:100]!r} is not valid: {why}"
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
