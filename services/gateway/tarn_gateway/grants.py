"""Authenticates callers and checks their permissions, for the gateway (graveler checks again).

The action is a column of the operation's row (`tarn_gateway.operations.table`). The resource follows from the
row's `about`. DeleteObjects and the sources of copies name more than one resource; their operations check
each with `require`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from tarn.client.auth import SigningGrant
from tarn.core.access.actions import (
    REPOSITORIES,
    Action,
    branches_resource,
    bucket_resource,
    object_resource,
    ref_object_resource,
    repository_resource,
)
from tarn.core.access.policy import Policy
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.refs import branch_to_write
from tarn.gate.access import Access
from tarn.rpc.wire.call import Call
from tarn_gateway.bodies.form import PostForm
from tarn_gateway.http import Request
from tarn_gateway.operation import About
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request, readable_ref
from tarn_gateway.signing.post_policy import check_policy, parse_post, verify_post
from tarn_gateway.signing.sigv2 import mismatch, parse_sigv2, signature_of
from tarn_gateway.signing.sigv4 import (
    SignedRequest,
    SigV4Policy,
    anonymous_refusal,
    parse_authorization,
    verify,
)
from tarn_proto.auth.v1.session_key_service_pb2 import (
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
)

__all__ = ["Authenticator", "authorize", "require"]


class Authenticator:
    """Identifies the caller of a request.

    Args:
        access: provides grants, cached for as long as auth allows.
        clock: checks the times of signatures and limits calls.
        policy: requirements on a signature.
        timeout_s: time limit of a call to auth.
        sigv2_domains: accepts Signature Version 2 beside version 4; host names whose subdomains are buckets. None:
            refuses it.
    """

    def __init__(
        self,
        access: Access,
        clock: Clock,
        policy: SigV4Policy,
        *,
        timeout_s: float,
        sigv2_domains: Sequence[str] | None = None,
    ) -> None:
        self._access = access
        self._cached = access.signing_grant_cached
        self._clock = clock
        self._policy = policy
        self._timeout_s = timeout_s
        self._sigv2_domains = sigv2_domains

    async def authenticate(self, request: Request) -> tuple[SignedRequest, SigningGrant]:
        """Returns the verified signature of a request, from headers or query, and its user's grant.

        Raises:
            S3Error: AccessDenied, SignatureDoesNotMatch and the other errors of `signing.sigv4`.
            S3Error: InvalidAccessKeyId for an unknown key.
            TarnError: any error of the call to auth.
        """
        now_us = self._clock.now_us()
        if self._sigv2_domains is not None:
            claim = parse_sigv2(request, now_us, self._sigv2_domains)
            if claim is not None:
                return claim, await self._granted_by_signature(request, claim)
        signed = parse_authorization(request, now_us, self._policy)
        token = request.headers.get(_TOKEN)
        granted = None
        if token is None:  # as `_granted`, in one step less
            granted = self._cached(signed[0], signed[1], signed[2], signed[3])
        if granted is None:
            granted = await self._granted(request, signed, token)
        verify(signed, granted.signing_key)
        return signed, granted

    async def _granted_by_signature(self, request: Request, claim: SignedRequest) -> SigningGrant:
        """Returns the grant of the key that signed a request by version 2; there is no signing key then.

        Raises:
            S3Error: SignatureDoesNotMatch; InvalidToken; InvalidAccessKeyId.
            TarnError: as `authenticate`.
        """
        token = request.headers.get(_TOKEN)
        digest = b"" if token is None else _token_digest(token)
        call, signature = self._call(request), signature_of(claim)
        for text in claim.strings_to_sign:
            try:
                with _naming(claim):
                    grant = await self._access.signature_grant(
                        call, claim.access_key_id, text, signature, digest
                    )
            except TarnError as error:
                if error.reason is not Reason.SIGNATURE_MISMATCH:
                    raise
            else:
                return SigningGrant(b"", grant)
        raise mismatch(claim)

    async def authenticate_form(
        self, form: PostForm, request: Request, bucket: str
    ) -> tuple[SignedRequest, SigningGrant]:
        """Likewise, for a form; and checks that its policy allows what it says.

        Raises:
            S3Error: the errors of `signing.post_policy`.
            TarnError: as `authenticate`.
        """
        signed = parse_post(request, form.fields, self._clock.now_us(), self._policy)
        granted = await self._granted(request, signed, form.fields.get(_TOKEN))
        verify_post(signed, form.fields, granted.signing_key)
        form.sizes = check_policy(form.fields, bucket, self._clock.now_us())
        return signed, granted

    async def claimed(self, request: Request, service: str) -> tuple[SignedRequest, SigningGrant]:
        """Returns what a request for another service than S3 claims, with the key by which `verify` has to check it
        against the hash of its body. Raises as `authenticate`."""
        policy = replace(self._policy, service=service)
        signed = parse_authorization(request, self._clock.now_us(), policy)
        return signed, await self._granted(request, signed, request.headers.get(_TOKEN))

    async def issue(
        self, request: Request, granted: SigningGrant, wanted: CreateSessionKeyRequest
    ) -> CreateSessionKeyResponse:
        """Issues a session key of a verified caller.

        Raises:
            TarnError: refusals of auth; any error of the call.
        """
        return await self._access.create_session_key(self._call(request, granted), wanted)

    def _call(self, request: Request, granted: SigningGrant | None = None) -> Call:
        token = "" if granted is None else granted.grant.caller_token
        return Call(request.request_id, token, self._clock.monotonic() + self._timeout_s)

    async def _granted(
        self, request: Request, signed: SignedRequest, token: str | None
    ) -> SigningGrant:
        """Returns the signing key and the grant of the access key that a request names. Raises as `authenticate`.

        A session token is part of the signature, as every header and parameter of its kind; or of the policy of a form.
        """
        digest = b"" if token is None else _token_digest(token)
        scope = (signed.access_key_id, signed.date, signed.region, signed.service, digest)
        granted = self._cached(*scope)
        if granted is None:
            with _naming(signed):
                granted = await self._access.signing_grant(self._call(request), *scope)
        return granted


_TOKEN: Final = "x-amz-security-token"  # noqa: S105 - the name of a header
_TOKEN_MAX: Final = 1024


@contextmanager
def _naming(signed: SignedRequest) -> Iterator[None]:
    """Has the error for an unknown access key name the key, as S3's does.

    Raises:
        S3Error: InvalidAccessKeyId.
    """
    try:
        yield
    except TarnError as error:
        if error.reason is not Reason.CREDENTIAL_NOT_FOUND:
            raise
        key = signed.access_key_id
        raise S3Error("InvalidAccessKeyId", error.message, AWSAccessKeyId=key) from error


def _token_digest(token: str) -> bytes:
    """Returns the digest of the session token of a request.

    Raises:
        S3Error: InvalidToken for a text that is no token.
    """
    if not 0 < len(token) <= _TOKEN_MAX:
        raise S3Error("InvalidToken", f"A session token has 1 to {_TOKEN_MAX} characters.")
    return hashlib.sha256(token.encode()).digest()


_WRITE: Final = Action.WRITE_REPO
_READ: Final = Action.READ_REPO
_OF_KEY: Final = About.KEY
"""Looked up once: members of enumerations are slow to reach."""


def _service(_: S3Request) -> str:
    return REPOSITORIES


def _name(request: S3Request) -> str:
    """A bucket view has a resource of its own; the name of a repository is the repository's."""
    name = request.address.bucket
    is_view = request.operation.action is Action.WRITE_BUCKETS
    return bucket_resource(name) if is_view else repository_resource(name)


def _bucket(request: S3Request) -> str:
    return repository_resource(request.repository)


def _listed(request: S3Request) -> str:
    """Returns the resource of a prefix: paths of a ref, or the refs of the repository."""
    ref, slash, path = (request.place.root + request.query.text("prefix")).partition("/")
    if not (ref and slash):
        return repository_resource(request.repository)
    return ref_object_resource(request.repository, readable_ref(ref), path)


def _key(request: S3Request) -> str:
    """A write names a branch; a read names the ref as the client spelled it (`tarn.core.access.actions`)."""
    target = request.ref_path
    assert target is not None, "the router gives operations on keys a key"
    if request.operation.action is _WRITE:
        branch = branch_to_write(target.ref)
        return object_resource(request.repository, branch, target.path)
    return ref_object_resource(request.repository, readable_ref(target.ref), target.path)


def _form(request: S3Request) -> str:
    if request.ref_path is None:
        condition = "Bucket POST must be of the enclosure-type multipart/form-data"
        raise S3Error("PreconditionFailed", Condition=condition)
    return _key(request)


_RESOURCES: Mapping[About, Callable[[S3Request], str] | None] = MappingProxyType(
    {
        About.SERVICE: _service,
        About.NAME: _name,
        About.BUCKET: _bucket,
        About.SETTINGS: _bucket,
        About.REF: _listed,
        About.KEYS: None,  # see `authorize`
        About.FORM: _form,
        About.KEY: _key,
        About.UPLOAD: _key,
    }
)


@lru_cache(4096)
def _may_read_all(policy: Policy, repository: str, ref: str) -> bool:
    """Whether a policy, which never changes, allows to read every path of a ref: then the path makes no difference.

    Raises:
        S3Error: NoSuchKey for a ref that cannot exist.
    """
    every = ref_object_resource(repository, readable_ref(ref), "")
    return policy.allows_all(Action.READ_REPO, every)


def require(request: S3Request, action: Action | None, resource: str) -> None:
    """Checks that the caller may perform an action on one resource.

    Args:
        request: the caller's request.
        action: a column of the operation's row, e.g. `request.operation.source`. None means an empty
            column: an access that the table does not list is denied to all callers.
        resource: see `tarn.core.access.actions`.

    Raises:
        TarnError: DENIED with ACCESS_DENIED if the caller may not.
    """
    if action is None:
        text = (
            f"the table of S3 operations has no action for this access of {request.operation.name}"
        )
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)
    request.granted.grant.require(action, resource)


def authorize(request: S3Request) -> None:
    """Checks that the caller may perform the operation on the resource that the address names.

    Raises:
        TarnError: DENIED with ACCESS_DENIED if the caller may not; the error of a malformed target.
        S3Error: NoSuchKey for a ref that cannot exist; AccessDenied for an anonymous request of what is not public.
    """
    operation, grant = request.operation, request.granted.grant
    if not request.signed.access_key_id:
        if not (operation.is_public and request.place.is_public):
            raise anonymous_refusal()
        return
    target = request.ref_path
    if (
        target is not None
        and operation.about is _OF_KEY
        and operation.action is _READ
        and _may_read_all(grant.policy, request.repository, target.ref)
    ):
        return
    resource_of = _RESOURCES[operation.about]
    if operation.about is About.SETTINGS and request.place.ref:
        grant.require(Action.WRITE_BUCKETS, bucket_resource(request.address.bucket))
    elif resource_of is not None:
        grant.require(operation.action, resource_of(request))
    else:
        # The body names the keys, and `deleting` checks each. A caller who may write none of them need not send it.
        grant.require_any(operation.action, branches_resource(request.repository))
