"""Names the repository, ref and path that a request is about, for the metadata of its errors."""

from __future__ import annotations

from google.protobuf.message import Message

from tarn.rpc.rules import OPERATION

__all__ = ["PATH", "REF", "REPOSITORY", "subject_of"]

REPOSITORY = "repository"
REF = "ref"
PATH = "path"

_FIELDS = (
    (REPOSITORY, ("repository_id",)),
    # The ref that a request changes comes before those that it reads.
    (REF, ("branch_id", "tag_id", "destination_ref", "ref", "left_ref")),
    (PATH, ("path",)),
)


def subject_of(request: Message) -> dict[str, str]:
    """Returns `repository`, `ref` and `path`, as far as a request names them.

    Args:
        request: of a unary rpc, or an operation of a coalesced stream.
    """
    if OPERATION in request.DESCRIPTOR.oneofs_by_name:
        kind = request.WhichOneof(OPERATION)
        if kind is None:
            return {}
        request = getattr(request, kind)
    fields = request.DESCRIPTOR.fields_by_name
    found = {}
    for name, candidates in _FIELDS:
        values = (getattr(request, each) for each in candidates if each in fields)
        if value := next((value for value in values if isinstance(value, str) and value), ""):
            found[name] = value
    return found
