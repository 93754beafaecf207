"""The columns of the table of S3 operations (`tarn_gateway.operations.table`)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tarn.core.access.actions import Action

__all__ = [
    "About",
    "Addressed",
    "COPY_SOURCE",
    "MissingRef",
    "NotOffered",
    "Operation",
]

COPY_SOURCE = "x-amz-copy-source"
"""The one header that selects operations."""


class Addressed(enum.Enum):
    """The part of the address that a request names; the first criterion that selects a row."""

    SERVICE = "the service"
    BUCKET = "a bucket"
    KEY = "an object"


class About(enum.Enum):
    """The resource of an operation, which its caller must be allowed to access (`grants.authorize`)."""

    SERVICE = "all repositories"
    NAME = "the name of the bucket, whatever it stands for"
    BUCKET = "the repository"
    SETTINGS = "the bucket itself: the repository, or the bucket view"
    REF = "the ref and the prefix that are listed, or the repository if no ref is named"
    KEYS = "each key of the body by itself"
    FORM = "the path of a branch that the key of the form names"
    KEY = "the path of a branch that is written, of any ref that is read"
    UPLOAD = "the same path: an upload belongs to its key"

    __hash__ = object.__hash__  # by identity: an enumeration's own hash costs every request

    @property
    def addressed(self) -> Addressed:
        """The part of the address that the request must name."""
        match self:
            case About.SERVICE:
                return Addressed.SERVICE
            case About.NAME | About.BUCKET | About.SETTINGS | About.REF | About.KEYS | About.FORM:
                return Addressed.BUCKET
            case About.KEY | About.UPLOAD:
                return Addressed.KEY


class MissingRef(enum.Enum):
    """How a branch, tag or commit that does not exist is reported."""

    OF_READ = "NoSuchKey"
    """S3A correctly takes NoSuchKey for an absent path, but ends its job at NoSuchBucket."""
    OF_WRITE = "NoSuchBucket"
    """NoSuchKey as the answer to a PUT would not explain the failure."""


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation that Tarn offers; the table adds the function that performs it.

    Attributes:
        name: S3's.
        method: the HTTP method.
        selected_by: the query parameters that select it, or the header `x-amz-copy-source`, separated by
            blanks; a parameter may have a value (`list-type=2`). The request has all of them, and no other
            parameter that selects any row.
        about: see `About`.
        action: the action that the caller must be allowed. A change of the settings of a bucket view needs
            `WriteBuckets` instead.
        missing_ref: see `MissingRef`.
        narrowed_by: a parameter that selects other operations, and that this one takes too.
        source: the action that is required on the source of a copy.
        if_match: the action that a request with `If-Match`, or a delete with any condition, requires in addition
            to `action`, because the answer shows whether the object exists.
        is_public: anonymous requests may have it, of a bucket view that is marked public-read.
        others: names of operations that the same request selects.
    """

    name: str
    method: str
    selected_by: str
    about: About
    action: Action
    missing_ref: MissingRef
    narrowed_by: str = field(default="", kw_only=True)
    source: Action | None = field(default=None, kw_only=True)
    if_match: Action | None = field(default=None, kw_only=True)
    is_public: bool = field(default=False, kw_only=True)
    others: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def addressed(self) -> Addressed:
        """The part of the address that the request must name."""
        return self.about.addressed


@dataclass(frozen=True, slots=True, eq=False)
class NotOffered:
    """An operation of S3 that Tarn does not offer. It is refused by name.

    Attributes:
        name: S3's.
        method: as `Operation.method`.
        selected_by: as `Operation.selected_by`.
        addressed: the part of the address that the request must name.
        why: a sentence for the client about the alternative.
        others: names of operations that the same request selects.
    """

    name: str
    method: str
    selected_by: str
    addressed: Addressed
    why: str = ""
    others: tuple[str, ...] = ()
