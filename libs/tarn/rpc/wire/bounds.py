"""The most items of each repeated field of a request, read from the option `tarn.common.v1.items_max` in its proto.

A server checks them before a handler gets the request: with each handler's own check, one that is forgotten is a way to
fill memory. The other fields are bounded by the size of a message.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldOptions
from google.protobuf.message import Message

from tarn.core.errors import Kind, Reason, TarnError
from tarn_proto.common.v1 import bound_pb2

if TYPE_CHECKING:
    from google.protobuf.internal.extension_dict import _ExtensionFieldDescriptor

__all__ = ["ItemBounds", "bounds_of", "items_max", "unbounded_fields"]


class ItemBounds:
    """The bounds of one type of messages, and of the messages in it.

    Raises:
        TypeError: a message of this type can hold another one of it. Raised by the constructor.
    """

    __slots__ = ("_lists", "_nested")

    def __init__(self, message: Descriptor, outer: frozenset[str]) -> None:
        if message.full_name in outer:
            raise TypeError(
                f"{message.full_name} holds itself, which the check of items does not follow"
            )
        within = outer | {message.full_name}
        self._lists = [(f.name, items_max(f)) for f in message.fields if f.is_repeated]
        self._nested = [
            (field.name, field.is_repeated, bounds)
            for field, kind in _messages(message)
            if (bounds := _bounds_of(kind, within)) is not None
        ]

    def __bool__(self) -> bool:
        return bool(self._lists or self._nested)

    def check(self, message: Message) -> None:
        """Refuses a message with too many items.

        Raises:
            TarnError: INVALID; names the field, the number of its items, and the bound.
        """
        for name, most in self._lists:
            count = len(getattr(message, name))
            if count > most:
                text = f"{name} of {message.DESCRIPTOR.name} has {count} items; at most {most} are allowed"
                facts = {"field": name, "count": str(count), "limit": str(most)}
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, **facts)
        # Lists of messages are short by now.
        for name, is_repeated, bounds in self._nested:
            if is_repeated:
                for each in getattr(message, name):
                    bounds.check(each)
            elif message.HasField(name):
                bounds.check(getattr(message, name))


def bounds_of(message: Descriptor) -> ItemBounds | None:
    """Returns the bounds of a type of messages; None if it has no repeated field, so that there is nothing to check."""
    return _bounds_of(message, frozenset())


def unbounded_fields(message: Descriptor) -> list[str]:
    """Returns the full names of the repeated fields of a message, and of those in it, that have no bound."""
    found: list[str] = []
    seen: set[str] = set()
    left = [message]
    while left:
        kind = left.pop()
        if kind.full_name not in seen:
            seen.add(kind.full_name)
            found += [f.full_name for f in kind.fields if f.is_repeated and not items_max(f)]
            left += [inner for _, inner in _messages(kind)]
    return sorted(found)


def items_max(field: FieldDescriptor) -> int:
    """Returns the bound of a field; 0 if its proto states none."""
    # The stubs of generated code do not state which message an extension extends.
    extension = cast("_ExtensionFieldDescriptor[FieldOptions, int]", bound_pb2.items_max)
    return field.GetOptions().Extensions[extension]


def _messages(message: Descriptor) -> list[tuple[FieldDescriptor, Descriptor]]:
    """Returns the fields of a message that are messages; a map is none."""
    return [
        (field, kind)
        for field in message.fields
        if (kind := field.message_type) is not None and not kind.GetOptions().map_entry
    ]


@cache
def _bounds_of(message: Descriptor, outer: frozenset[str]) -> ItemBounds | None:
    return ItemBounds(message, outer) or None
