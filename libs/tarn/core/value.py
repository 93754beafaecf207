"""Values that hot paths make by the thousand.

A frozen dataclass sets each field through `object.__setattr__`: making one costs three times as much as
making a plain one. `@hot_value` keeps what a value is, equality by fields, a hash, slots, and to the type
checker frozen fields, and leaves out only the guard at run time. It is for what is made per request;
everything else stays `@dataclass(frozen=True, slots=True)`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

__all__ = ["hot_value"]

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def hot_value(cls: type[T]) -> type[T]:
    """Makes a dataclass of a class whose instances nobody changes. A `__hash__` of its own is kept."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in cls.__dict__)(cls)
