"""The limits and rules of the KV port. Every driver checks them before it touches its engine.

They are defined beside the port so that all drivers accept exactly the same input.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import (
    COMPANION_BYTES_MAX,
    COMPANION_KEYS,
    COMPANIONS_MAX,
    KEY_BYTES_MAX,
    SCAN_LIMIT_MAX,
    VALUE_BYTES_MAX,
    CompanionName,
    Group,
    Partition,
    PartitionKind,
    Row,
    RowFilter,
)

__all__ = [
    "check_companion_names",
    "check_companions",
    "check_group",
    "check_keys",
    "check_register",
    "check_row",
    "check_scan_limit",
    "check_scan_without",
    "closed_error",
    "kinds_mixed_error",
]


def check_row(key: bytes, value: bytes) -> int:
    """Checks a row and returns the size of its key and value in bytes.

    Raises:
        TarnError: INVALID: the key or the value is not `bytes`, or is longer than the port allows, or the key is that
            of a companion.
    """
    _check_key(key)
    if key.startswith(COMPANION_KEYS):
        raise _invalid(f"key {key!r} is kept for companions")
    if not isinstance(value, bytes):
        raise _invalid(f"value of key {key!r} must be bytes, not {type(value).__name__}")
    if len(value) > VALUE_BYTES_MAX:
        text = f"value of {len(value)} bytes is longer than {VALUE_BYTES_MAX}"
        raise _invalid(f"{text} (key {key!r})", size_bytes=str(len(value)))
    return len(key) + len(value)


def check_keys(keys: Sequence[bytes]) -> None:
    """Raises `TarnError` INVALID for a key that is too long or not `bytes`."""
    for key in keys:
        _check_key(key)


def _check_key(key: bytes) -> None:
    if not isinstance(key, bytes):
        raise _invalid(f"key must be bytes, not {type(key).__name__}")
    if len(key) > KEY_BYTES_MAX:
        text = f"key of {len(key)} bytes is longer than {KEY_BYTES_MAX}"
        raise TarnError(Kind.INVALID, Reason.KEY_TOO_LONG, text, size_bytes=str(len(key)))


def check_companions(companions: Sequence[Row]) -> int:
    """Checks the companions of one write and returns their size in bytes.

    Raises:
        TarnError: INVALID: there are too many, one is too long, or its key does not begin as it must.
    """
    if len(companions) > COMPANIONS_MAX:
        raise _invalid(f"{len(companions)} companions are more than {COMPANIONS_MAX}")
    size_bytes = 0
    for key, value in companions:
        if not isinstance(key, bytes) or (key_bytes := len(key)) > KEY_BYTES_MAX:
            _check_key(key)  # raises
        if not key.startswith(COMPANION_KEYS):
            raise _invalid(f"the key {key!r} of a companion must begin with {COMPANION_KEYS!r}")
        if not isinstance(value, bytes) or (value_bytes := len(value)) > COMPANION_BYTES_MAX:
            text = f"the companion {key!r} must be at most {COMPANION_BYTES_MAX} bytes"
            raise _invalid(text)
        size_bytes += key_bytes + value_bytes
    return size_bytes


def check_companion_names(names: Sequence[CompanionName]) -> None:
    """Raises `TarnError` INVALID for an anchor or key as no companion has."""
    for anchor, key in names:
        check_keys((anchor, key))
        if not key.startswith(COMPANION_KEYS):
            raise _invalid(f"the key {key!r} is not that of a companion")


def check_group(group: Group) -> int:
    """Checks a group and returns its size in bytes, with its companions. Raises as `check_row` and
    `check_companions`, and for an empty group."""
    if not group.rows:
        raise _invalid(f"group of anchor {group.anchor!r} has no rows")
    size_bytes = 0
    for key, value in group.rows:  # mostly one: a comprehension would be a call more
        size_bytes += check_row(key, value)
    return size_bytes + check_companions(group.companions) if group.companions else size_bytes


def check_scan_limit(limit: int) -> None:
    """Raises `TarnError` INVALID for a page size outside 1 to `SCAN_LIMIT_MAX`."""
    if not 1 <= limit <= SCAN_LIMIT_MAX:
        raise _invalid(f"limit must be 1 to {SCAN_LIMIT_MAX}, not {limit}", limit=str(limit))


def check_scan_without(limit: int, unwanted: RowFilter) -> None:
    """Raises `TarnError` INVALID as `check_scan_limit`, and if no value is greater than all unwanted ones:
    drivers look for a range of values."""
    check_scan_limit(limit)
    if not unwanted.value_begins.rstrip(b"\xff"):
        raise _invalid(f"the beginning of unwanted values must not be {unwanted.value_begins!r}")


def check_register(partition: Partition, operation: str) -> None:
    """Raises `TarnError` INVALID when a compare-and-set is tried on a plain partition."""
    if partition.kind is not PartitionKind.REGISTER:
        text = f"{operation} needs a register partition, {partition.name!r} is plain"
        raise _invalid(text, partition=partition.name)


def kinds_mixed_error(partition: Partition, stored: PartitionKind) -> TarnError:
    """The error for a partition that is used as another kind than the one it was created with."""
    text = f"partition {partition.name!r} is {stored.value}, not {partition.kind.value}"
    return _invalid(text, partition=partition.name)


def closed_error() -> TarnError:
    """The error for an operation on a closed store. The operation was not applied."""
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is closed")


def _invalid(message: str, **metadata: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, message, **metadata)
