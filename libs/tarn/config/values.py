"""Converts the text of a setting to its value.

Settings have the same spelling in the file and in the environment, so both pass through this module as text: a
YAML `0123` stays the text that was written, and `no` is not converted to false.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "Choice",
    "Form",
    "Kind",
    "Number",
    "Secret",
    "Sort",
    "Within",
    "described",
    "parse_value",
    "suffix_of",
]

_DURATION = re.compile(r"([0-9]+)\s*(ms|s|m|h|d)")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"([0-9]+)\s*([KMGT]iB|[kMGT]B|B)?")
_SIZE_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+")
_PORT_MAX = 65_535
_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_SECRET_BYTES_MIN = 32


@dataclass(frozen=True, slots=True)
class Secret:
    """A text that logs, errors and reprs do not show."""

    _text: str = field(repr=False)

    def __str__(self) -> str:
        return "[redacted]"

    def reveal(self) -> str:
        """Returns the text itself."""
        return self._text


class Sort(enum.Enum):
    """The basic kinds of settings; each value describes the kind to users."""

    TEXT = "text"
    SECRET = "secret text"  # noqa: S105 - a description
    HEX_SECRET = "secret, 64 or more hex digits"  # noqa: S105 - a description
    PATH = "path"
    ADDRESS = "`host:port`"
    ADDRESSES = "list of `host:port`"
    FLAG = "true or false"
    RATIO = "number from 0 to 1"
    DURATION = "duration"
    SIZE = "size"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several words, compared without case.

    Attributes:
        words: the documented words; the value is the word in lower case.
        spellings: other words in lower case, mapped to their value, such as `badger` to `embedded`.
    """

    words: tuple[str, ...]
    spellings: tuple[tuple[str, str], ...] = ()

    @property
    def values(self) -> set[str]:
        """All values that the words can give."""
        spelled = dict(self.spellings)
        return {spelled.get(word.lower(), word.lower()) for word in self.words} | set(
            spelled.values()
        )


@dataclass(frozen=True, slots=True)
class Number:
    """A whole number with inclusive bounds."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Within:
    """A duration or a size with bounds.

    Attributes:
        sort: `Sort.DURATION` or `Sort.SIZE`.
        minimum: as a user would write it; inclusive.
        maximum: likewise; None for no bound.
        words: words that stand for a value, in lower case, each with that value; they need not be within the bounds.
    """

    sort: Sort
    minimum: str
    maximum: str | None = None
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """A text of a certain form.

    Attributes:
        pattern: a regular expression that matches the whole text.
        words: describes the form to users, after "must be". Errors do not show the text, as it may hold a
            password.
    """

    pattern: str
    words: str


Kind = Sort | Choice | Number | Within | Form
"""The kind of a setting: how its text is read, and how it is described."""


def suffix_of(kind: Kind) -> str:
    """The unit that ends the field's name and is missing in the key's name."""
    sort = kind.sort if isinstance(kind, Within) else kind
    return _SUFFIXES.get(sort, "") if isinstance(sort, Sort) else ""


def described(kind: Kind) -> str:
    """Describes the kind in Markdown, for the documentation and for errors."""
    match kind:
        case Choice(words=words):
            return "one of " + ", ".join(f"`{word}`" for word in words)
        case Number(minimum=minimum, maximum=maximum):
            return f"{minimum} to {maximum}"
        case Within(sort=sort):
            return f"{sort.value}, {_bounds(kind)}"
        case Form(words=words):
            return words
        case Sort():
            return kind.value


def parse_value(kind: Kind, text: str, home: Path) -> object:
    """Converts the text of a setting to its value.

    Raises:
        ValueError: says what was expected; the caller adds the key and the place.
    """
    match kind:
        case Choice():
            return _choice(kind, text)
        case Number():
            return _number(text, kind.minimum, kind.maximum)
        case Within():
            return _within(kind, text)
        case Form(pattern=pattern, words=words):
            if not re.fullmatch(pattern, text):
                raise ValueError(f"must be {words}")
            return text
        case Sort.PATH:
            return _path(text, home)
        case Sort():
            return _PARSERS[kind](text)


def _within(kind: Within, text: str) -> int:
    parse = _duration if kind.sort is Sort.DURATION else _size
    words = dict(kind.words)
    value = parse(words.get(text.lower(), text))
    if value in map(parse, words.values()):
        return value
    if value < parse(kind.minimum) or (kind.maximum is not None and value > parse(kind.maximum)):
        raise ValueError(f"must be {_bounds(kind)}, not {text!r}")
    return value


def _bounds(kind: Within) -> str:
    found = f"{kind.minimum} {'or more' if kind.maximum is None else f'to {kind.maximum}'}"
    words = ", ".join(f"`{word}`" for word, _ in kind.words)
    return f"{found}, or one of {words}" if words else found


def _number(text: str, minimum: int, maximum: int) -> int:
    rule = f"must be a whole number from {minimum} to {maximum}, not {text!r}"
    if not re.fullmatch(r"[0-9]{1,15}", text) or not minimum <= int(text) <= maximum:
        raise ValueError(rule)
    return int(text)


def _choice(choice: Choice, text: str) -> str:
    word = text.lower()
    spellings = dict(choice.spellings)
    if word not in spellings.keys() | {known.lower() for known in choice.words}:
        raise ValueError(f"must be one of {', '.join(choice.words)}, not {text!r}")
    return spellings.get(word, word)


def _hex_secret(text: str) -> Secret:
    # Errors do not show the text, since it may be a secret in another form.
    if not re.fullmatch(rf"(?:[0-9A-Fa-f]{{2}}){{{_SECRET_BYTES_MIN},}}", text):
        raise ValueError(f"must be at least {2 * _SECRET_BYTES_MIN} hex digits, of an even number")
    return Secret(text)


def _path(text: str, home: Path) -> Path:
    if not text or "\0" in text:
        raise ValueError("must be a path")
    if text == "~" or text.startswith("~/"):
        return home / text[2:]
    if text.startswith("~"):
        raise ValueError(f"knows `~/`, but not another user's home: {text!r}")
    return Path(text).absolute()


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not port.isdecimal() or int(port) > _PORT_MAX:
        raise ValueError(f"must be host:port, such as 127.0.0.1:8000 or [::1]:8000, not {text!r}")
    return text


def _flag(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(f"must be true or false, not {text!r}")


def _ratio(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or float(text) > 1:
        raise ValueError(f"must be a number from 0 to 1, not {text!r}")
    return float(text)


def _quantity(text: str, form: re.Pattern[str], units: dict[str, int], what: str) -> int:
    found = form.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"must be {what}, not {text!r}")
    count, unit = found.groups()
    return int(count) * units[unit or "B"]


def _duration(text: str) -> int:
    return _quantity(text, _DURATION, _DURATION_MS, "a duration such as 500ms, 10s or 2h")


def _size(text: str) -> int:
    return _quantity(text, _SIZE, _SIZE_BYTES, "a size such as 64MiB or 1GB")


def _addresses(text: str) -> tuple[str, ...]:
    return tuple(_address(part.strip()) for part in text.split(","))


_SUFFIXES: Mapping[Sort, str] = {Sort.DURATION: "_ms", Sort.SIZE: "_bytes"}
_PARSERS: Mapping[Sort, Callable[[str], object]] = {
    Sort.TEXT: str,
    Sort.SECRET: Secret,
    Sort.HEX_SECRET: _hex_secret,
    Sort.ADDRESS: _address,
    Sort.ADDRESSES: _addresses,
    Sort.FLAG: _flag,
    Sort.RATIO: _ratio,
    Sort.DURATION: _duration,
    Sort.SIZE: _size,
}
