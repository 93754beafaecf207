"""What a record of lakeFS becomes in Tarn. Pure: no input or output (docs/design/history-from-lakefs.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.commit import Commit, with_author_time
from tarn.core.dump import LINE_BYTES_MAX, to_line
from tarn.core.entry import Entry
from tarn.core.entry_check import PARTS_MAX
from tarn.core.errors import TarnError
from tarn.core.ids import CommitId, MetarangeId, parse_path, parse_user_id
from tarn.lakefs.records import PeerCommit, PeerEntry
from tarn.lakefs.state import CopiedBlock
from tarn.objects.headers import (
    NO_HEADERS,
    StoredHeaders,
    stored_headers,
    stored_metadata,
    with_headers,
)

__all__ = [
    "COMMIT_ID",
    "COMMITTER",
    "Checksum",
    "checksum_of",
    "commit_from",
    "entry_from",
    "path_from",
]

COMMIT_ID: Final = "lakefs.commit_id"
"""Name under which a commit's metadata keep its id in lakeFS."""
COMMITTER: Final = "lakefs.committer"
"""The same for a committer whose name no user of Tarn can have."""
_UNNAMED: Final = "lakefs"
_RESERVED: Final = ("tarn.", "lakefs.")
_ETAG: Final = re.compile(r"([0-9a-f]{32})(?:-([1-9][0-9]{0,4}))?")


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum of lakeFS that Tarn can keep: an MD5, or that of the MD5s of so many parts."""

    md5: bytes
    parts: int


def checksum_of(etag: str) -> Checksum | None:
    """Reads lakeFS's checksum of an object; None: of another form, as object stores other than S3 have."""
    found = _ETAG.fullmatch(etag.strip('"').lower())
    if found is None or int(found[2] or 0) > PARTS_MAX:
        return None
    return Checksum(bytes.fromhex(found[1]), int(found[2] or 0))


def path_from(key: bytes) -> str:
    """Returns the path of an object.

    Raises:
        TarnError: INVALID: Tarn cannot have it.
    """
    return parse_path(key.decode(errors="surrogateescape"))


def entry_from(entry: PeerEntry, block: CopiedBlock) -> tuple[Entry, bool]:
    """Returns the entry of a copied object, and whether all of its headers could be kept.

    lakeFS accepts metadata of any names and sizes; what S3 could not answer is left out.
    """
    etag = checksum_of(entry.etag)
    md5, parts = block.md5, 0
    if etag is not None and etag.parts and not block.is_gone:
        md5, parts = etag.md5, etag.parts
    made = Entry(entry.size, entry.mtime_us, block.address, md5, etag_parts=parts)
    headers, is_whole = _headers(entry)
    return with_headers(made, headers), is_whole


def _headers(entry: PeerEntry) -> tuple[StoredHeaders, bool]:
    whole = stored_metadata(entry.metadata)
    for content_type, metadata in (
        (entry.content_type, whole),
        (entry.content_type, {}),
        ("", whole),
    ):
        try:
            headers = stored_headers(content_type, metadata)
        except TarnError:
            continue
        return headers, content_type == entry.content_type and metadata == whole
    return NO_HEADERS, False


def commit_from(
    commit: PeerCommit, parents: Sequence[tuple[CommitId, Commit]], metarange_id: MetarangeId
) -> Commit:
    """Returns Tarn's commit of a commit of lakeFS.

    Its date is that of lakeFS, but not before those of its parents, which clients of lakeFS may choose freely; then the
    date of lakeFS is that of its author.

    Raises:
        ValueError: Tarn cannot keep the commit.
    """
    metadata = {
        f"lakefs.{name}" if name.startswith(_RESERVED) else name: value
        for name, value in commit.metadata.items()
    }
    metadata[COMMIT_ID] = commit.commit_id
    committer = commit.committer
    try:
        parse_user_id(committer)
    except TarnError:
        if committer:
            metadata[COMMITTER] = committer
        committer = _UNNAMED
    time_us = max([commit.time_us, *(parent.create_time_us for _, parent in parents)])
    pairs = tuple(sorted(metadata.items()))
    if time_us != commit.time_us:
        pairs = with_author_time(pairs, commit.time_us)
    made = Commit(
        parents=tuple(commit_id for commit_id, _ in parents),
        metarange_id=metarange_id,
        committer=committer,
        message=commit.message,
        create_time_us=time_us,
        generation=1 + max((parent.generation for _, parent in parents), default=-1),
        metadata=pairs,
    )
    size = len(to_line(made).encode())
    if size > LINE_BYTES_MAX:
        raise ValueError(f"its message and metadata have {size} bytes; Tarn keeps {LINE_BYTES_MAX}")
    return made
