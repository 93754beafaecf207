"""Checks that a service's answer has the promised form."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["expect", "garbled"]

MessageT = TypeVar("MessageT", bound=Message)


def expect(answer: Message, wanted: type[MessageT]) -> MessageT:
    """Returns the answer as the type that the rpc promises.

    Raises:
        TarnError: INTERNAL: the answer has another type, so the two sides were built from different protos.
    """
    if not isinstance(answer, wanted):
        raise garbled(f"{type(answer).__name__} instead of {wanted.__name__}")
    return answer


def garbled(what: str) -> TarnError:
    """The error for an answer that breaks the contract of its rpc; none of its contents may be used."""
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, f"the service answered with {what}")
