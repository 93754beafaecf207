"""What an answer must be before a client believes it."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["expect", "garbled"]

MessageT = TypeVar("MessageT", bound=Message)


def expect(answer: Message, wanted: type[MessageT]) -> MessageT:
    """The answer as the type that the rpc promises.

    Raises:
        TarnError: INTERNAL if it is another: the two sides are not built from the same proto.
    """
    if not isinstance(answer, wanted):
        raise garbled(f"{type(answer).__name__} instead of {wanted.__name__}")
    return answer


def garbled(what: str) -> TarnError:
    """An answer that breaks the contract of its rpc: nothing in it may be believed."""
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, f"the service answered with {what}")
