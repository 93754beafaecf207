"""The kinds of failures that a call of `tarn.client` raises; `tarn.client.errors` has the precise reasons."""

from __future__ import annotations

from typing import ClassVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.subject import PATH, REF, REPOSITORY

__all__ = [
    "TarnCallError",
    "NotFoundError",
    "AlreadyExistsError",
    "InvalidError",
    "DeniedError",
    "UnauthenticatedError",
    "LostRaceError",
    "FailedPreconditionError",
    "ExhaustedError",
    "UnavailableError",
    "DeadlineError",
    "UnknownOutcomeError",
    "UnimplementedError",
    "CorruptError",
    "InternalError",
]


class TarnCallError(TarnError):
    """A failed call.

    Attributes:
        kind: the kind of failure.
        reason: the precise reason.
        message: a sentence for people.
        metadata: the subject of the call and the variables of the message, by name.
        KIND: the kind of a class; None if errors of the class have one of several.
        KINDS: the kinds that a reason without a single one comes with, the usual one first.
        REASON: the reason of a class; None for the class of a kind.
    """

    KIND: ClassVar[Kind | None] = None
    KINDS: ClassVar[tuple[Kind, ...]] = ()
    REASON: ClassVar[Reason | None] = None

    @property
    def repository(self) -> str:
        """The repository that the call was about; empty if it was about none."""
        return self.metadata.get(REPOSITORY, "")

    @property
    def ref(self) -> str:
        """The ref that the error is about, such as a branch; empty if it is about none."""
        return self.metadata.get(REF, "")

    @property
    def path(self) -> str:
        """The path that the error is about; empty if it is about none."""
        return self.metadata.get(PATH, "")


class NotFoundError(TarnCallError):
    """A repository, ref, object, user or key pair does not exist."""

    KIND = Kind.NOT_FOUND


class AlreadyExistsError(TarnCallError):
    """The name is taken."""

    KIND = Kind.ALREADY_EXISTS


class InvalidError(TarnCallError):
    """The request is wrong; repeated, it fails again."""

    KIND = Kind.INVALID


class DeniedError(TarnCallError):
    """The caller lacks a permission."""

    KIND = Kind.DENIED


class UnauthenticatedError(TarnCallError):
    """The caller is not known: the key pair or the token is wrong."""

    KIND = Kind.UNAUTHENTICATED


class LostRaceError(TarnCallError):
    """Another change came first: read again and decide again."""

    KIND = Kind.CONFLICT


class FailedPreconditionError(TarnCallError):
    """The state of the branch or object does not allow the operation."""

    KIND = Kind.FAILED_PRECONDITION


class ExhaustedError(TarnCallError):
    """A limit is exceeded; nothing was done. Try again later."""

    KIND = Kind.EXHAUSTED


class UnavailableError(TarnCallError):
    """Surely not done. The client repeated the call in vain; try again later."""

    KIND = Kind.UNAVAILABLE


class DeadlineError(TarnCallError):
    """No answer to a read within the time of the call."""

    KIND = Kind.DEADLINE


class UnknownOutcomeError(TarnCallError):
    """The change may or may not have been made, or may be made later: look before you repeat it."""

    KIND = Kind.UNKNOWN_OUTCOME


class UnimplementedError(TarnCallError):
    """The server does not have this operation."""

    KIND = Kind.UNIMPLEMENTED


class CorruptError(TarnCallError):
    """Stored data are damaged; run `tarn fsck`."""

    KIND = Kind.CORRUPT


class InternalError(TarnCallError):
    """A defect of Tarn; the server's log has the details under the request id."""

    KIND = Kind.INTERNAL
