"""The paths of the objects of a run."""

__all__ = ["keys_of"]

_KEYS = (
    *("a", "b/1", "b/2", "c", "d/e/f", "z"),
    *("a/", "a/b", "a/b/c", "a0", "aa", "b", "b/", "b/10", "b/é", "b/é/x", "c/", "d/e", "é", "é/1"),
    *("ß", "日", "日/本", "日/語", "\ue000", "\U0001f600", "\U0001f600/x", "~"),
)
"""The first keys share some prefixes; the others share as many as possible, and some have characters of two,
three and four bytes. (`e000` and `1f600` change places in UTF-16.)"""


def keys_of(count: int) -> list[str]:
    """Returns the paths of a run, in byte order."""
    return sorted(_KEYS[:count])
