"""Objects that were erased out of all history (docs/design/erase.md): reads of them are 410 and name the plan.

Graveler is asked only after a block was missed, so a read that finds its block costs nothing.
"""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.objects.backend import Caller, ObjectBackend
from tarn.objects.bodies import LostBlockError

__all__ = ["ErasedObjectError", "lost_error", "told_if_erased"]


class ErasedObjectError(TarnError):
    """The object's block is gone because the object was erased.

    Attributes:
        plan_id: the plan that erased it.
    """

    def __init__(self, plan_id: str) -> None:
        text = f"The object's data was erased out of all history, by plan {plan_id}."
        super().__init__(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text, plan_id=plan_id)
        self.plan_id = plan_id


async def lost_error(
    lost: LostBlockError,
    backend: ObjectBackend,
    caller: Caller,
    repository_id: str,
    ref: str,
    path: str,
) -> LostBlockError | ErasedObjectError:
    """Returns the error for a block that was missed: that of an erased object, if the object was erased.

    Args:
        lost: the error of the read.
        backend: of the operation.
        caller: may read the object.
        repository_id: of the object.
        ref: of the object.
        path: of the object.

    Raises:
        TarnError: graveler gives no answer.
    """
    address = bytes.fromhex(lost.key.path.rpartition("/")[2])
    call = backend.call(caller)
    try:
        plan_id = await backend.graveler.find_erased(call, repository_id, ref, path, address)
    except TarnError as error:
        if error.kind is not Kind.UNIMPLEMENTED:  # a replica of a release without erasures
            raise
        plan_id = ""
    return ErasedObjectError(plan_id) if plan_id else lost


class told_if_erased:  # noqa: N801 - a context, used as a function
    """Turns the loss of a block into the error of an erased object, if the object was erased: `lost_error`. A class,
    because each read enters one, and the generator of a context costs more than the rest of it.

    Raises:
        ErasedObjectError: it was erased.
        LostBlockError: the block is lost.
        TarnError: graveler gives no answer.
    """

    __slots__ = ("_of",)

    def __init__(
        self, backend: ObjectBackend, caller: Caller, repository_id: str, ref: str, path: str
    ) -> None:
        self._of = backend, caller, repository_id, ref, path

    async def __aenter__(self) -> None:
        """Begins the read."""

    async def __aexit__(
        self, kind: type[BaseException] | None, lost: BaseException | None, traceback: object
    ) -> None:
        """Ends the read."""
        if (
            isinstance(lost, LostBlockError)
            and (error := await lost_error(lost, *self._of)) is not lost
        ):
            raise error from lost
