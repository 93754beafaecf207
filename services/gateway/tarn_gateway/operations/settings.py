"""Settings of buckets that S3 has and Tarn has not. None is stored, and every bucket has the same ones; those that tell
who may read differ for a bucket view that is marked public-read.

Tools read them before they do anything else. The answer is what is so: a document, or S3's error for a bucket that has
no such setting. A PUT of what is so succeeds and changes nothing; all others are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import SETTINGS_BYTES_MAX, Settings, malformed, settings_parser
from tarn_gateway.http import Response
from tarn_gateway.s3error import S3Code, S3Error
from tarn_gateway.s3request import S3Request

__all__ = [
    "ACCELERATION",
    "LOGGING",
    "NOTIFICATIONS",
    "OWNERSHIP",
    "PAYER",
    "POLICY_STATUS",
    "PUBLIC_ACCESS",
    "Setting",
    "confirmed",
    "policy_status",
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
        of_public: those of a public-read bucket view that differ.
        choices: of places that a document of S3 has exactly once, the texts that S3 knows.
    """

    root: str
    values: Mapping[str, str] = field(default_factory=dict)
    of_public: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Collection[str]] = field(default_factory=dict)

    async def current(self, backend: Backend, request: S3Request) -> Mapping[str, str]:
        """Returns the values of a request's bucket. Raises as `Backend.is_public`."""
        if self.of_public and await backend.is_public(request):
            return {**self.values, **self.of_public}
        return self.values

    def check(self, said: Settings) -> None:
        """Raises MalformedXML for a document that S3 takes from no client."""
        for place, choices in self.choices.items():
            found = [text for name, text in said if name == place]
            if len(found) != 1 or found[0] not in choices:
                listed = ", ".join(choices)
                raise malformed(f"{self.root} needs one {place}, which is one of {listed}")


OWNERSHIP: Final = Setting(
    "OwnershipControls",
    {"Rule/ObjectOwnership": "BucketOwnerEnforced"},
    choices={
        "Rule/ObjectOwnership": ("BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter")
    },
)
PUBLIC_ACCESS: Final = Setting(
    "PublicAccessBlockConfiguration",
    {
        "BlockPublicAcls": "true",
        "IgnorePublicAcls": "true",
        "BlockPublicPolicy": "true",
        "RestrictPublicBuckets": "true",
    },
    {"IgnorePublicAcls": "false", "RestrictPublicBuckets": "false"},
)
POLICY_STATUS: Final = Setting("PolicyStatus", {"IsPublic": "true"})
PAYER: Final = Setting("RequestPaymentConfiguration", {"Payer": "BucketOwner"})
# S3 answers an empty document for a bucket without one of these.
LOGGING: Final = Setting("BucketLoggingStatus")
NOTIFICATIONS: Final = Setting("NotificationConfiguration")
ACCELERATION: Final = Setting("AccelerateConfiguration")


def shown(setting: Setting) -> Perform:
    """Returns an operation that answers a setting."""

    async def perform(backend: Backend, request: S3Request) -> Response:
        await backend.repositories.get(backend.call(request), request.repository)
        values = await setting.current(backend, request)
        return xml_out.answer(xml_out.settings(setting.root, values))

    return perform


def unset(code: S3Code) -> Perform:
    """Returns an operation that answers S3's error for a bucket without a setting."""

    async def perform(backend: Backend, request: S3Request) -> Response:
        await backend.repositories.get(backend.call(request), request.repository)
        raise S3Error(code, BucketName=request.address.bucket)

    return perform


async def policy_status(backend: Backend, request: S3Request) -> Response:
    """GetBucketPolicyStatus: a bucket has no policy, but a public one is told to be public."""
    if not await backend.is_public(request):
        return await unset("NoSuchBucketPolicy")(backend, request)
    return await shown(POLICY_STATUS)(backend, request)


def confirmed(setting: Setting) -> Perform:
    """Returns an operation that accepts a document which says what is so, and refuses what else S3 accepts as not
    implemented.
    """
    parser = partial(settings_parser, setting.root, frozenset(setting.values))

    async def perform(backend: Backend, request: S3Request) -> Response:
        await backend.repositories.get(backend.call(request), request.repository)
        values = await setting.current(backend, request)
        payload = backend.payload(request)
        user_id = request.granted.grant.user_id
        said = await backend.documents.read(payload, user_id, SETTINGS_BYTES_MAX, parser)
        setting.check(said)
        expected = sorted((place, text.lower()) for place, text in values.items())
        # XML Schema spells booleans in lower case, examples of S3 in upper case.
        if sorted((place, text.lower()) for place, text in said) != expected:
            name = request.operation.name
            listed = ", ".join(f"{place} {text}" for place, text in values.items())
            text = f"{name} is implemented only for what the bucket has: {listed}."
            raise S3Error("NotImplemented", text, Operation=name)
        return Response(200)

    return perform
