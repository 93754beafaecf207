"""Checks names of blocks, namespaces, uploads and parts, with the same rules for every driver.

Tarn makes block paths, but a driver turns them into file names, object keys and SQL parameters. So no driver
accepts an unchecked string: a path that could leave its namespace is rejected here with a clear error,
before the file system sees it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "LIST_LIMIT_MAX",
    "METADATA_PREFIX",
    "PART_NUMBER_MAX",
    "PATH_BYTES_MAX",
    "PATH_SEGMENTS_MAX",
    "REPLACED_PREFIX",
    "check_listing",
    "check_part",
    "check_parts",
    "check_path",
    "check_replaced",
    "check_span",
    "check_upload",
    "parse_namespace",
]

PATH_BYTES_MAX = 1024
"""S3's limit on a key. All drivers enforce the strictest limit of any driver."""
SEGMENT_BYTES_MAX = 255
"""NAME_MAX of the usual Linux file systems."""
PATH_SEGMENTS_MAX = 32
"""Limit on path segments: the number of directory descriptors that one walk may hold open."""
NAMESPACE_SEGMENTS_MAX = 8
LIST_LIMIT_MAX = 10_000
PART_NUMBER_MAX = 10_000

METADATA_PREFIX = "_tarn/"
"""Prefix of content-addressed paths (ranges, metaranges, commits): the same bytes may be written again."""

REPLACED_PREFIX = "_tarn/symlinks/"
"""Prefix of the only paths whose blocks may be replaced: files that are made anew from other data, and that no data of
Tarn depend on (docs/formats/symlinks.md)."""

_MADE_BY_TARN = re.compile(
    r"data/[0-9]{10}/[0-9a-f]{32}"
)  # the form of `physical_path`: the common case
_NAMESPACE_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,128}")


def _invalid(what: str, value: str, rule: str) -> TarnError:
    shown = ascii(value if len(value) <= 80 else value[:80] + "...")
    return TarnError(
        Kind.INVALID, Reason.INVALID_ARGUMENT, f"{what} {shown} {rule}", field=what, value=shown
    )


def parse_namespace(namespace: str, scheme: str | None) -> tuple[str, ...]:
    """Splits `<scheme>://<name>/<name>` into its names.

    Args:
        namespace: see `BlockKey.namespace`.
        scheme: the scheme of the driver; None accepts any.

    Raises:
        TarnError: INVALID if the namespace is malformed. Names never begin with `.`: those are reserved
            for files of the drivers.
    """
    found, separator, rest = namespace.partition("://")
    if not separator or (scheme is not None and found != scheme):
        raise _invalid("namespace", namespace, f"must begin with {scheme or '<scheme>'}://")
    names = tuple(rest.split("/"))
    if len(names) > NAMESPACE_SEGMENTS_MAX:
        raise _invalid("namespace", namespace, f"has more than {NAMESPACE_SEGMENTS_MAX} segments")
    if not all(_NAMESPACE_SEGMENT.fullmatch(name) for name in names):
        rule = "must be made of segments of A-Z, a-z, 0-9, '_', '-' and '.', not beginning with '-' or '.'"
        raise _invalid("namespace", namespace, rule)
    return names


def check_path(path: str) -> str:
    """Returns the path if it is a valid block path.

    Raises:
        TarnError: INVALID if it is empty, absolute, too long or too deep, is not UTF-8, contains NUL or an
            empty, `.` or `..` segment, or begins with `.` (reserved for the drivers' own files).
    """
    if _MADE_BY_TARN.fullmatch(path):
        return path
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise _invalid("block path", path, "is not UTF-8") from None
    if size > PATH_BYTES_MAX:
        raise _invalid("block path", path, f"is longer than {PATH_BYTES_MAX} bytes")
    segments = path.split("/")
    if len(segments) > PATH_SEGMENTS_MAX:
        raise _invalid("block path", path, f"has more than {PATH_SEGMENTS_MAX} segments")
    if not all(map(_is_segment, segments)):
        raise _invalid("block path", path, "has an empty, '.', '..' or oversized segment, or a NUL")
    if path.startswith("."):
        raise _invalid("block path", path, "must not begin with '.'")
    return path


def check_replaced(path: str) -> str:
    """Returns the path if it is valid, and of a block that may be replaced.

    Raises:
        TarnError: INVALID as `check_path`, and for a path that does not begin with `REPLACED_PREFIX`.
    """
    if not path.startswith(REPLACED_PREFIX):
        raise _invalid("block path", path, f"is written once: it is not below {REPLACED_PREFIX}")
    return check_path(path)


def _is_segment(name: str) -> bool:
    if name in {"", ".", ".."} or "\0" in name:
        return False
    return len(name) <= SEGMENT_BYTES_MAX // 4 or len(name.encode()) <= SEGMENT_BYTES_MAX


def check_listing(prefix: str, after: str, limit: int) -> bool:
    """Returns whether any block can match this listing; `..` in a prefix matches nothing and is not an error.

    Raises:
        TarnError: INVALID if a string is not UTF-8 or the limit is not 1 to `LIST_LIMIT_MAX`.
    """
    if not 1 <= limit <= LIST_LIMIT_MAX:
        raise _invalid("limit", str(limit), f"must be 1 to {LIST_LIMIT_MAX}")
    for what, value in (("prefix", prefix), ("after", after)):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _invalid(what, value, "is not UTF-8") from None
    *parents, last = prefix.split("/")
    if len(parents) >= PATH_SEGMENTS_MAX or prefix.startswith("."):
        return False
    return all(map(_is_segment, parents)) and "\0" not in last


def check_span(start: int, length: int | None) -> None:
    """Rejects a negative start or length.

    Raises:
        TarnError: INVALID if either is negative.
    """
    if start < 0 or (length is not None and length < 0):
        raise _invalid("byte range", f"{start}+{length}", "must not be negative")


def check_upload(upload: str) -> str:
    """Returns the name of an upload: 1 to 128 letters, digits, `_` and `-`.

    Raises:
        TarnError: INVALID if the name breaks this rule.
    """
    if not _LABEL.fullmatch(upload):
        raise _invalid("upload", upload, "must be 1 to 128 of letters, digits, '_' and '-'")
    return upload


def check_part(part: int, attempt: str) -> str:
    """Returns the name of one attempt at a part: `<part>-<attempt>`.

    Raises:
        TarnError: INVALID if the number or the name of the attempt is out of bounds.
    """
    if not 1 <= part <= PART_NUMBER_MAX:
        raise _invalid("part", str(part), f"must be 1 to {PART_NUMBER_MAX}")
    if not _LABEL.fullmatch(attempt):
        raise _invalid("attempt", attempt, "must be 1 to 128 of letters, digits, '_' and '-'")
    return f"{part:05d}-{attempt}"


def check_parts(upload: str, parts: Sequence[tuple[int, str]]) -> list[str]:
    """Returns the names (`check_part`) of the parts that an upload is completed with.

    Raises:
        TarnError: INVALID, UPLOAD_PART_INVALID: there are none, or too many; INVALID as `check_part`.
    """
    if not 1 <= len(parts) <= PART_NUMBER_MAX:
        text = f"upload {upload} is completed with {len(parts)} parts, not 1 to {PART_NUMBER_MAX}"
        raise TarnError(Kind.INVALID, Reason.UPLOAD_PART_INVALID, text, parts=str(len(parts)))
    return [check_part(part, attempt) for part, attempt in parts]
