"""Thrift's compact protocol, as far as the metadata of Parquet files uses it."""

from __future__ import annotations

from typing import Final, TypeAlias

__all__ = ["Long", "Struct", "Value", "read_struct"]

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = (
    *range(1, 11),
    12,
)
_DEPTH_MAX: Final = 16
_LIST_MAX: Final = 1 << 20
_TEXT_MAX: Final = 4096
"""Bytes of a text that is kept; writers keep no longer ones as the least or the greatest value of a column."""


class Long(int):
    """A number of 64 bits. One of 32 bits is an `int`: readers take a field of the wrong type for absent."""


Struct: TypeAlias = "dict[int, Value]"
"""Fields of a structure, by id."""

Value: TypeAlias = "int | bool | bytes | Struct | list[Value] | None"
"""Numbers, short texts, structures and lists; None stands for others, which are not kept."""


def read_struct(body: memoryview, at: int, depth: int = 0) -> tuple[Struct, int]:
    """Reads a structure; returns its fields, and where it ends.

    Raises:
        ValueError: it cannot be read, or is of a kind that no writer makes.
    """
    if depth > _DEPTH_MAX:
        raise ValueError("its metadata is too deep")
    fields: Struct = {}
    field = 0
    try:
        while byte := body[at]:
            at += 1
            kind, delta = byte & 15, byte >> 4
            if not delta:
                raise ValueError("its metadata has fields out of order")
            field += delta
            if kind == _I32 and body[at] < 128:  # most fields: a number of one byte
                number = body[at]
                fields[field] = (number >> 1) ^ -(number & 1)
                at += 1
            elif kind in (_TRUE, _FALSE):
                fields[field] = kind == _TRUE
            else:
                fields[field], at = _value(body, at, kind, depth + 1)
    except IndexError:
        raise ValueError("its metadata ends behind the file") from None
    return fields, at + 1


def _value(body: memoryview, at: int, kind: int, depth: int) -> tuple[Value, int]:
    if kind in (_I16, _I32, _I64):
        number, at = _varint(body, at)
        value = (number >> 1) ^ -(number & 1)
        if kind == _I64:
            return Long(value), at
        if not -(1 << 31) <= value < 1 << 31:
            raise ValueError("its metadata has a number of more than 32 bits")
        return value, at
    if kind == _STRUCT:
        return read_struct(body, at, depth)
    if kind == _BINARY:
        length, at = _varint(body, at)
        return bytes(body[at : at + length]) if length <= _TEXT_MAX else None, at + length
    if kind in (_LIST, _SET):
        return _list(body, at, depth)
    if kind == _DOUBLE:
        return None, at + 8
    if kind in (_TRUE, _FALSE, _BYTE):
        return None, at + 1  # in a list, a truth value is a byte
    raise ValueError(f"its metadata has a field of type {kind}")


def _list(body: memoryview, at: int, depth: int) -> tuple[Value, int]:
    if depth > _DEPTH_MAX:
        raise ValueError("its metadata is too deep")
    count, kind = body[at] >> 4, body[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(body, at)
    if count > min(_LIST_MAX, len(body) - at):
        raise ValueError(f"its metadata has a list of {count} items")
    found: list[Value] = []
    for _ in range(count):
        value, at = _value(body, at, kind, depth + 1)
        found.append(value)
    return found, at


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise ValueError("its metadata has a number that is too long")
    if value >= 1 << 64:
        raise ValueError("its metadata has a number of more than 64 bits")
    return value, at
