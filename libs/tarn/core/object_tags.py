"""Object tags: pairs of a key and a value that clients attach to an object, with S3's limits.

S3 counts the characters of a tag as UTF-16 does, so that a letter beyond the basic plane is two. It allows letters,
numbers and spaces of any script, and `+ - = . _ : / @` (S3 User Guide, "Categorizing your objects using tags").
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["TAGS_MAX", "Tags", "is_reserved", "is_tag_key", "is_tag_value"]

Tags = tuple[tuple[str, str], ...]
"""Keys and values, ordered by their keys, which are unique."""

TAGS_MAX: Final = 10
"""Most tags of an object."""
_KEY_UNITS_MAX: Final = 128
_VALUE_UNITS_MAX: Final = 256
_SIGNS: Final = "+-=._:/@"
_CATEGORIES: Final = frozenset("LNZ")
"""Letters, numbers and separators, by the first letters of their Unicode categories."""
_PLAIN: Final = re.compile(r"[0-9A-Za-z +\-=._:/@]*")
_RESERVED: Final = "aws:"


def is_tag_key(text: str) -> bool:
    """Returns whether a text can be the key of a tag: 1 to 128 characters that S3 allows."""
    return bool(text) and _is_allowed(text, _KEY_UNITS_MAX)


def is_tag_value(text: str) -> bool:
    """Returns whether a text can be the value of a tag: 0 to 256 characters that S3 allows."""
    return _is_allowed(text, _VALUE_UNITS_MAX)


def is_reserved(key: str) -> bool:
    """Returns whether a key begins as those that S3 sets by itself, in capital or small letters."""
    return key[: len(_RESERVED)].lower() == _RESERVED


def _is_allowed(text: str, units_max: int) -> bool:
    if len(text) > units_max:
        return False
    if _PLAIN.fullmatch(text):
        return True
    units = len(text) + sum(each > "\uffff" for each in text)
    return units <= units_max and all(
        unicodedata.category(each)[0] in _CATEGORIES or each in _SIGNS for each in text
    )
