"""A cheaper dataclass for values that hot paths create by the thousand.

A frozen dataclass sets each field through `object.__setattr__`, so creating one costs three times as much as
creating a plain one. `@hot_value` keeps equality by fields, a hash, slots and, for the type checker, frozen
fields; it only omits the guard at run time. Use it for values that are made per request, and
`@dataclass(frozen=True, slots=True)` for everything else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

__all__ = ["hot_value"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def hot_value(cls: type[T]) -> type[T]:
    """Makes a dataclass of a class whose instances are never changed. Keeps the class's own `__hash__`."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in cls.__dict__)(cls)
