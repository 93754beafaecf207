"""Tarn's records as lakeFS shows them: times in seconds since the epoch, ETags without quotes, addresses as URIs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from tarn.block.port import PresignsReads
from tarn.core.entry import Entry, ListedEntry, listed_of, shown_time_us
from tarn.core.ids import physical_path
from tarn.objects.bodies import block_key
from tarn.objects.headers import LAKECTL_SHOWN, LAKECTL_STORED
from tarn_api.context import Context
from tarn_proto.auth.v1 import user_pb2 as user_pb
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import repository_service_pb2 as repository_pb
from tarn_rest import schemas

__all__ = [
    "DEFAULT_CONTENT_TYPE",
    "LINK_S",
    "commit",
    "content_type",
    "disposition",
    "link",
    "credentials",
    "object_stats",
    "prefix_stats",
    "repository",
    "seconds",
    "stats_of_page",
    "user",
]

DEFAULT_CONTENT_TYPE = "application/octet-stream"
"""lakeFS's, of an object that was written without one."""

LINK_S = 900
"""Life of a presigned URL in seconds, as lakeFS has it. Until then it needs no permission."""

_COMMIT_VERSION = 1


def seconds(time_us: int) -> int:
    """Returns a time in microseconds as seconds since the epoch."""
    return shown_time_us(time_us) // 1_000_000


def repository(found: repository_pb.Repository) -> schemas.Repository:
    """Returns a repository. Its namespace is what the client named, because clients compare; nothing is kept there."""
    return schemas.Repository(
        id=found.repository_id,
        creation_date=found.create_time.seconds,
        default_branch=found.default_branch_id,
        storage_namespace=found.client_namespace or found.storage_namespace,
    )


def user(found: user_pb.User) -> schemas.User:
    """Returns a user. Tarn knows no other name of it, and no address."""
    return schemas.User(
        id=found.user_id,
        creation_date=found.create_time.seconds,
        friendly_name=found.user_id,
    )


def credentials(found: user_pb.Credential) -> schemas.Credentials:
    """Returns a key pair without its secret."""
    return schemas.Credentials(
        access_key_id=found.access_key_id, creation_date=found.create_time.seconds
    )


def commit(found: commit_pb.Commit) -> schemas.Commit:
    """Returns a commit. Its date is the time of its author, if that is known. The first commit of a repository, which
    nobody asked for, has no committer: lakeFS's clients print one that is there."""
    time = found.author_time if found.HasField("author_time") else found.create_time
    return schemas.Commit(
        id=found.commit_id,
        parents=list(found.parent_ids),
        committer=found.committer if found.parent_ids else "",
        message=found.message,
        creation_date=time.seconds,
        meta_range_id=found.metarange_id,
        metadata=dict(found.metadata),
        generation=found.generation,
        version=_COMMIT_VERSION,
    )


def object_stats(
    path: str, entry: Entry, namespace: str, *, with_metadata: bool
) -> schemas.ObjectStats:
    """Returns an object; for the arguments see `stats_of_page`, which says the same of each of its objects (a property
    test compares them) and makes less for each."""
    place = entry.external_address or f"{namespace.rstrip('/')}/{physical_path(entry.address)}"
    return schemas.ObjectStats(
        path=path,
        path_type="object",
        physical_address=place,
        checksum=entry.etag,
        size_bytes=entry.size,
        mtime=shown_time_us(entry.mtime_us) // 1_000_000,
        metadata=_shown_metadata(entry) if with_metadata else None,
        content_type=content_type(entry),
    )


def stats_of_page(
    paths: Sequence[str], entries: Sequence[bytes], namespace: str, *, with_metadata: bool
) -> list[schemas.ObjectStats]:
    """Returns objects and common prefixes.

    Args:
        paths: of the objects and common prefixes.
        entries: packed; empty for a common prefix.
        namespace: of the repository.
        with_metadata: whether user metadata are shown.

    Raises:
        EntryCorruptError: an entry is damaged.
    """
    rows = listed_of(filter(None, entries))
    objects = _stats(compress(paths, entries), rows, namespace, with_metadata=with_metadata)
    if len(objects) == len(entries):
        return objects
    rest = iter(objects)
    return [
        next(rest) if packed else prefix_stats(path)
        for path, packed in zip(paths, entries, strict=True)
    ]


def _stats(
    paths: Iterable[str],
    rows: Iterable[ListedEntry],
    namespace: str,
    *,
    with_metadata: bool,
) -> list[schemas.ObjectStats]:
    """Returns objects; `rows` is what `tarn.core.entry.listed_of` returns."""
    root = namespace.rstrip("/")
    last: Entry | None = None
    kind, metadata = "", None
    stats = []
    for path, (size, etag, mtime_us, address, like) in zip(paths, rows, strict=True):
        if like is not last:
            last, kind = like, content_type(like)
            metadata = _shown_metadata(like) if with_metadata else None
        stats.append(
            schemas.ObjectStats(
                path=path,
                path_type="object",
                physical_address=like.external_address or f"{root}/{physical_path(address)}",
                checksum=etag,
                size_bytes=size,
                mtime=mtime_us // 1_000_000,
                metadata=metadata,
                content_type=kind,
            )
        )
    return stats


def _shown_metadata(entry: Entry) -> dict[str, str]:
    return {
        LAKECTL_SHOWN + name.removeprefix(LAKECTL_STORED)
        if name.startswith(LAKECTL_STORED)
        else name: value
        for name, value in entry.metadata
    }


def content_type(entry: Entry) -> str:
    """Returns the Content-Type of an object. Entries of other clients may hold what no header can."""
    kind = entry.content_type
    return kind if kind and kind.isascii() and kind.isprintable() else DEFAULT_CONTENT_TYPE


def disposition(entry: Entry) -> str:
    """Returns a Content-Disposition that lets browsers download the object and not show it."""
    stored = entry.content_disposition
    is_whole = stored.lower().startswith("attachment") and stored.isascii() and stored.isprintable()
    return stored if is_whole else "attachment"


async def link(
    context: Context, blocks: PresignsReads, namespace: str, entry: Entry
) -> tuple[str, int]:
    """Returns a URL by which whoever has it reads the object, and its end in seconds since the epoch.

    Args:
        context: of a caller who may read the object: that was checked.
        blocks: the block store.
        namespace: of the repository.
        entry: the object.

    Raises:
        TarnError: NOT_IMPLEMENTED: the bytes are outside of the namespace; errors of the store.
    """
    key = block_key(namespace, entry)
    end = context.backend.clock.now_us() // 1_000_000 + LINK_S
    url = await blocks.presign_read(
        key, LINK_S, content_type=content_type(entry), content_disposition=disposition(entry)
    )
    return url, end


def prefix_stats(path: str) -> schemas.ObjectStats:
    """Returns a common prefix."""
    return schemas.ObjectStats(
        path=path, path_type="common_prefix", physical_address="", checksum="", mtime=0
    )
