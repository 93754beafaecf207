"""Who asks, and may they: the gateway's half of authorisation (graveler decides again).

Rule of residence: an operation that is not in `_RESOURCES` cannot be carried out. DeleteObjects and the
sources of copies name more than one resource; their operations ask for each by `require`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tarn.client.access import Access
from tarn.client.auth import SigningGrant
from tarn.core.actions import (
    REPOSITORIES,
    action_of,
    object_resource,
    ref_object_resource,
    repository_resource,
)
from tarn.core.clock import Clock
from tarn.rpc.call import Call
from tarn_gateway.asked import Asked, readable_ref
from tarn_gateway.http import Request
from tarn_gateway.router import Operation
from tarn_gateway.sigv4 import SignedRequest, SigV4Policy, parse_authorization, verify

__all__ = ["Gate", "authorize", "require"]


class Gate:
    """Finds out whose request it is.

    Args:
        access: grants, cached for as long as auth lets them be.
        clock: dates signatures, times out calls.
        policy: what is asked of a signature.
        timeout_s: for a question to auth.
    """

    def __init__(
        self, access: Access, clock: Clock, policy: SigV4Policy, *, timeout_s: float
    ) -> None:
        self._access = access
        self._clock = clock
        self._policy = policy
        self._timeout_s = timeout_s

    async def authenticate(self, request: Request) -> tuple[SignedRequest, SigningGrant]:
        """The verified signature of a request, in headers or query, and its user's grant.

        Raises:
            S3Error: AccessDenied, SignatureDoesNotMatch and the others of `sigv4`.
            TarnError: CREDENTIAL_NOT_FOUND; what the way to auth raises.
        """
        signed = parse_authorization(request, self._clock.now_us(), self._policy)
        scope = (signed.access_key_id, signed.date, signed.region, signed.service)
        granted = self._access.signing_grant_cached(*scope)
        if granted is None:
            deadline = self._clock.monotonic() + self._timeout_s
            call = Call(request.request_id, "", deadline)
            granted = await self._access.signing_grant(call, *scope)
        verify(signed, granted.signing_key)
        return signed, granted


def _bucket(asked: Asked) -> str:
    return repository_resource(asked.bucket)


def _read(asked: Asked) -> str:
    at = asked.target
    return ref_object_resource(asked.bucket, readable_ref(at.ref), at.path)


def _write(asked: Asked) -> str:
    return object_resource(asked.bucket, asked.branch, asked.target.path)


def _listing(asked: Asked) -> str:
    """What a prefix can see: paths of a ref, or the refs of the repository."""
    ref, slash, path = asked.query.text("prefix").partition("/")
    if not (ref and slash):
        return repository_resource(asked.bucket)
    return ref_object_resource(asked.bucket, readable_ref(ref), path)


_RESOURCES: Mapping[Operation, Callable[[Asked], str] | None] = MappingProxyType(
    {
        Operation.LIST_BUCKETS: lambda _: REPOSITORIES,
        Operation.HEAD_BUCKET: _bucket,
        Operation.GET_BUCKET_LOCATION: _bucket,
        Operation.GET_BUCKET_VERSIONING: _bucket,
        Operation.LIST_OBJECTS: _listing,
        Operation.LIST_OBJECTS_V2: _listing,
        Operation.LIST_MULTIPART_UPLOADS: _listing,
        Operation.DELETE_OBJECTS: None,  # each key by itself
        Operation.GET_OBJECT: _read,
        Operation.HEAD_OBJECT: _read,
        Operation.LIST_PARTS: _read,
        Operation.PUT_OBJECT: _write,
        Operation.COPY_OBJECT: _write,
        Operation.DELETE_OBJECT: _write,
        Operation.CREATE_MULTIPART_UPLOAD: _write,
        Operation.UPLOAD_PART: _write,
        Operation.UPLOAD_PART_COPY: _write,
        Operation.COMPLETE_MULTIPART_UPLOAD: _write,
        Operation.ABORT_MULTIPART_UPLOAD: _write,
    }
)


def require(asked: Asked, operation: str, resource: str) -> None:
    """Lets the caller through to one resource.

    Args:
        asked: whose request.
        operation: a line of `tarn.core.actions`, e.g. `CopyObject.source`.
        resource: see there.

    Raises:
        TarnError: DENIED, ACCESS_DENIED.
    """
    action = action_of(operation)
    if action is not None:
        asked.granted.grant.require(action, resource)


def authorize(asked: Asked) -> None:
    """Lets the request through to what its address names.

    Raises:
        TarnError: DENIED, ACCESS_DENIED; what a malformed target raises.
        S3Error: NoSuchKey for a ref that cannot be.
    """
    resource_of = _RESOURCES[asked.operation]
    if resource_of is not None:
        require(asked, asked.operation, resource_of(asked))
