"""Requests of any rpc, made of values by the names of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

__all__ = ["NESTED", "request_of"]

NESTED = ("merge", "preview", "commit", "revert", "cherry_pick")
"""Fields that hold a request of another rpc."""


def request_of(of: Any, values: Mapping[str, Any]) -> Message:
    """Returns a request of a descriptor with those of the values that it has fields for, and so the requests in it."""
    fields = of.fields_by_name
    known = {name: value for name, value in values.items() if name in fields}
    for name in NESTED:
        nested = fields[name].message_type if name in fields else None
        if nested is not None and nested.name.endswith("Request"):
            known[name] = request_of(nested, values)
    return GetMessageClass(of)(**known)
