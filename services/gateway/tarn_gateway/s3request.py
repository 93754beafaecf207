"""A request that was understood: what it asks for, where, and who asks."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tarn.client.auth import SigningGrant
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, parse_path
from tarn.core.refs import is_commit_id, parse_ref
from tarn_gateway.http import Headers, Request
from tarn_gateway.requests.address import Address, RefPath, split_key
from tarn_gateway.requests.query import Query
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.sigv4 import SignedRequest

if TYPE_CHECKING:
    from tarn_gateway.operation import Operation

__all__ = ["S3Request", "branch_to_write", "readable_ref"]


class S3Request:
    """One authenticated request.

    A plain class with slots: it is made for every request, and a frozen dataclass costs three times
    as much to make. Nothing changes it after the handler has made it.

    Attributes:
        http: as received; its body is not read yet.
        operation: the row of the table that it selects.
        address: bucket and key.
        ref_path: the key, split into ref and path; None where the request names no key.
        query: decoded.
        signed: its signature, verified.
        granted: the signing key and what the caller may do.
    """

    __slots__ = ("address", "granted", "http", "operation", "query", "ref_path", "signed")

    def __init__(
        self,
        http: Request,
        operation: Operation,
        address: Address,
        query: Query,
        signed: SignedRequest,
        granted: SigningGrant,
    ) -> None:
        self.http = http
        self.operation = operation
        self.address = address
        self.ref_path: RefPath | None = split_key(address.key) if address.key else None
        self.query = query
        self.signed = signed
        self.granted = granted

    @property
    def headers(self) -> Headers:
        """Of the request."""
        return self.http.headers

    @property
    def bucket(self) -> str:
        """The bucket, which is the repository."""
        return self.address.bucket

    @property
    def target(self) -> RefPath:
        """The key's ref and path, of an operation on a key."""
        assert self.ref_path is not None, "the router gives operations on keys a key"
        return self.ref_path

    @property
    def branch(self) -> BranchId:
        """The branch of a key that is to be written.

        Raises:
            TarnError: REF_NOT_WRITABLE for a tag-like, relative or commit ref; INVALID_ARGUMENT for
                what is no ref at all.
        """
        return branch_to_write(self.target.ref)

    @property
    def path(self) -> str:
        """The path of a key that is to be written; empty for the root of the branch.

        Raises:
            TarnError: KEY_TOO_LONG.
        """
        path = self.target.path
        return parse_path(path) if path else path


@lru_cache(maxsize=4096)
def branch_to_write(ref: str) -> BranchId:
    """The branch of a ref that is to be written; a tag's name passes, only graveler knows those.

    Raises:
        TarnError: as `S3Request.branch`.
    """
    expression = parse_ref(ref)
    if expression.committed or is_commit_id(expression.base):
        text = f"{ref} is not a branch; only branches take writes"
        raise TarnError(Kind.INVALID, Reason.REF_NOT_WRITABLE, text, ref=ref)
    return BranchId(expression.base)


def readable_ref(ref: str) -> str:
    """A ref that may exist.

    Raises:
        S3Error: NoSuchKey for what breaks the grammar. Clients probe for paths that were never written
            (`s3a://lake/_temporary/0`, `.sparkStaging`); 400 ends their job, 404 is the truth.
    """
    try:
        parse_ref(ref)
    except TarnError as error:
        raise S3Error("NoSuchKey", error.message) from None
    return ref
