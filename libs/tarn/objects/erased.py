"""Objects that were erased out of all history (docs/design/erase.md): reads of them are 410 and name the plan.

Graveler is asked only after a block was missed, so a read that finds its block costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tarn.core.errors import Kind, TarnError
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.blocks import LostBlockError
from tarn_gateway.requests.address import RefPath
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["told_if_erased"]


@asynccontextmanager
async def told_if_erased(
    backend: Backend, request: S3Request, bucket: str, target: RefPath
) -> AsyncIterator[None]:
    """Turns the loss of a block into ObjectErased, if the object was erased.

    Args:
        backend: of the operation.
        request: whose caller may read the object.
        bucket: of the object.
        target: its ref and path.

    Raises:
        S3Error: ObjectErased; LostBlockError: the block is lost.
        TarnError: graveler gives no answer.
    """
    try:
        yield
    except LostBlockError as lost:
        address = bytes.fromhex(lost.key.path.rpartition("/")[2])
        call = backend.call(request)
        try:
            plan_id = await backend.graveler.find_erased(
                call, bucket, target.ref, target.path, address
            )
        except TarnError as error:
            if error.kind is not Kind.UNIMPLEMENTED:  # a replica of a release without erasures
                raise
            plan_id = ""
        if not plan_id:
            raise
        text = f"The object's data was erased out of all history, by plan {plan_id}."
        raise S3Error("ObjectErased", text, ErasurePlan=plan_id) from lost
