"""A request that was let in: its operation, its address and its caller."""

from __future__ import annotations

from tarn.client.auth import SigningGrant
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, parse_path
from tarn.core.refs import branch_to_write, parse_ref
from tarn_gateway.bodies.form import PostForm
from tarn_gateway.bucket_cache import Place
from tarn_gateway.http import Headers, Request
from tarn_gateway.operation import Operation
from tarn_gateway.requests.address import Address, RefPath, split_key
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SignedRequest

__all__ = ["S3Request", "readable_ref", "ref_path_of"]


class S3Request:
    """One authenticated request.

    A plain class: one is created for every request, and creating a frozen dataclass takes three times as long. It is
    not changed after the handler has created it, except for `outcomes`.

    Attributes:
        http: as received; its body is not read yet.
        headers: of it.
        began: when the gateway received it, on the monotonic clock in seconds.
        operation: the selected row of the table.
        address: bucket and key, as sent.
        place: what the bucket stands for.
        repository: of the bucket; empty for the service itself.
        ref_path: the ref and the path of the key; None if the request names no key.
        query: decoded.
        signed: its verified signature; an absent one of an anonymous request.
        form: of PostObject; its file is not read yet.
        granted: the signing key and the caller's permissions.
        is_body_taken: whether the operation has begun to read the body; then it cannot be performed again.
        request_id, caller_token, view: see `tarn.objects.backend.Caller`.
        outcomes: of an operation on several resources: each resource and its error code, empty if it succeeded;
            for the audit log.
    """

    form: PostForm | None = None
    is_body_taken = False

    def __init__(
        self,
        http: Request,
        began: float,
        operation: Operation,
        address: Address,
        place: Place,
        query: Query,
        signed: SignedRequest,
        granted: SigningGrant,
        form: PostForm | None = None,
    ) -> None:
        self.http = http
        self.headers: Headers = http.headers
        self.began = began
        self.operation = operation
        self.address = address
        self.place = place
        self.repository = place.repository
        if form is not None:
            self.form = form
            self.is_body_taken = True
        key = address.key
        self.ref_path: RefPath | None = ref_path_of(place, key) if key else None
        self.query = query
        self.signed = signed
        self.granted = granted
        self.request_id = http.request_id
        self.caller_token = granted.grant.caller_token
        self.view = place.version
        self.outcomes: list[tuple[str, str]] = []

    def at(self, place: Place) -> S3Request:
        """Returns the same request, whose bucket stands for another place."""
        return S3Request(
            self.http,
            self.began,
            self.operation,
            self.address,
            place,
            self.query,
            self.signed,
            self.granted,
            self.form,
        )

    def ref_path_of(self, key: str) -> RefPath:
        """Returns the ref and the path of a key of the request's bucket. Raises as `ref_path_of`."""
        return ref_path_of(self.place, key)

    @property
    def is_anonymous(self) -> bool:
        """Whether it carries no signature."""
        return not self.signed.access_key_id

    @property
    def target(self) -> RefPath:
        """The key's ref and path, for an operation on a key."""
        assert self.ref_path is not None, "the router gives operations on keys a key"
        return self.ref_path

    @property
    def branch(self) -> BranchId:
        """The branch of a key to write.

        Raises:
            TarnError: REF_NOT_WRITABLE for a tag-like, relative or commit ref; INVALID_ARGUMENT for
                a string that is not a ref.
        """
        return branch_to_write(self.target.ref)

    @property
    def path(self) -> str:
        """The path of a key to write; empty for the root of the branch.

        Raises:
            TarnError: KEY_TOO_LONG for a path over the limit.
        """
        path = self.target.path
        return parse_path(path) if path else path


def ref_path_of(place: Place, key: str) -> RefPath:
    """Returns the ref and the path of a key: in a view the whole key is the path.

    Raises:
        S3Error: as `split_key`.
    """
    return RefPath(place.ref, key, True) if place.ref else split_key(key)


def readable_ref(ref: str) -> str:
    """Returns the ref if it may exist.

    Raises:
        S3Error: NoSuchKey for a string that breaks the grammar. Clients probe for paths that were never
            written (`s3a://lake/_temporary/0`, `.sparkStaging`); 400 would end their job, 404 is correct.
    """
    try:
        parse_ref(ref)
    except TarnError as error:
        raise S3Error("NoSuchKey", error.message) from None
    return ref
