"""Settings of buckets that S3 has and Tarn has not. Every bucket has the same ones, and none is stored.

Tools read them before they do anything else. The answer is what is so: a document, or S3's error for a bucket that has
no such setting. A PUT of what is so succeeds and changes nothing; all others are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import SETTINGS_BYTES_MAX, settings_parser
from tarn_gateway.http import Response
from tarn_gateway.s3error import S3Code, S3Error
from tarn_gateway.s3request import S3Request

__all__ = [
    "ACCELERATION",
    "LOGGING",
    "NOTIFICATIONS",
    "OWNERSHIP",
    "PAYER",
    "PUBLIC_ACCESS",
    "Setting",
    "confirmed",
    "shown",
    "unset",
]

Perform = Callable[[Backend, S3Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What is so for every bucket.

    Attributes:
        root: of the document.
        values: texts by their place below the root, e.g. `Rule/ObjectOwnership`.
    """

    root: str
    values: Mapping[str, str] = field(default_factory=dict)


OWNERSHIP: Final = Setting("OwnershipControls", {"Rule/ObjectOwnership": "BucketOwnerEnforced"})
PUBLIC_ACCESS: Final = Setting(
    "PublicAccessBlockConfiguration",
    {
        "BlockPublicAcls": "true",
        "IgnorePublicAcls": "true",
        "BlockPublicPolicy": "true",
        "RestrictPublicBuckets": "true",
    },
)
PAYER: Final = Setting("RequestPaymentConfiguration", {"Payer": "BucketOwner"})
# S3 answers an empty document for a bucket without one of these.
LOGGING: Final = Setting("BucketLoggingStatus")
NOTIFICATIONS: Final = Setting("NotificationConfiguration")
ACCELERATION: Final = Setting("AccelerateConfiguration")


def shown(setting: Setting) -> Perform:
    """Returns an operation that answers a setting."""
    document = xml_out.settings(setting.root, setting.values)

    async def perform(backend: Backend, request: S3Request) -> Response:
        await backend.repositories.get(backend.call(request), request.repository)
        return xml_out.answer(document)

    return perform


def unset(code: S3Code) -> Perform:
    """Returns an operation that answers S3's error for a bucket without a setting."""

    async def perform(backend: Backend, request: S3Request) -> Response:
        await backend.repositories.get(backend.call(request), request.repository)
        raise S3Error(code, BucketName=request.address.bucket)

    return perform


def confirmed(setting: Setting) -> Perform:
    """Returns an operation that accepts a document which says what is so, and refuses all others as not implemented."""
    parser = partial(settings_parser, setting.root, frozenset(setting.values))
    expected = sorted((place, text.lower()) for place, text in setting.values.items())
    listed = ", ".join(f"{place} {text}" for place, text in setting.values.items())

    async def perform(backend: Backend, request: S3Request) -> Response:
        await backend.repositories.get(backend.call(request), request.repository)
        payload = backend.payload(request)
        user_id = request.granted.grant.user_id
        said = await backend.documents.read(payload, user_id, SETTINGS_BYTES_MAX, parser)
        # XML Schema spells booleans in lower case, examples of S3 in upper case.
        if sorted((place, text.lower()) for place, text in said) != expected:
            name = request.operation.name
            text = f"{name} is implemented only for what every bucket has: {listed}."
            raise S3Error("NotImplemented", text, Operation=name)
        return Response(200)

    return perform
