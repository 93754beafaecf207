"""Shared by all handlers: repositories and their rules, limits, pages and conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.access.policy import Grant
from tarn.core.commit import AUTHOR_TIME
from tarn.core.condition import WriteCondition
from tarn.core.entry import has_tags
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import Feature, FeatureGate
from tarn.core.retention import KEEP_EVERYTHING, Retention
from tarn.kv.records import Repository
from tarn.rpc.rules import Rule
from tarn.rpc.wire.pagination import PageTokens, page_size
from tarn_graveler.cursors.cursor import Cursor
from tarn_graveler.records.bucket_views import BucketViews
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.settings import RepositorySettings
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

__all__ = [
    "CommitText",
    "RepositoryRequest",
    "RepositoryRules",
    "checked_metadata",
    "delete_condition",
    "microseconds",
    "page_of",
    "started_after",
    "paging",
    "require_features",
    "require_retention",
    "timestamp",
    "write_condition",
]

PAGE_DEFAULT = 100
PAGE_MAX = 1000
IF_MATCH_BYTES_MAX = 128
_AFTER_BYTES_MAX = 1024
_MESSAGE_BYTES_MAX = 64 * 1024
_METADATA_BYTES_MAX = 64 * 1024
_SECONDS_MIN, _SECONDS_MAX = -62_135_596_800, 253_402_300_799
"""The years 1 to 9999, as `google.protobuf.Timestamp` defines them."""


def timestamp(time_us: int) -> Timestamp:
    """Converts microseconds since the epoch to a protobuf timestamp."""
    stamp = Timestamp()
    stamp.FromMicroseconds(time_us)
    return stamp


def microseconds(field: str, time: Timestamp) -> int:
    """Converts the timestamp in a field of a request to microseconds since the epoch.

    Raises:
        TarnError: INVALID_ARGUMENT. The library accepts any numbers, and fails, or wraps, when it formats them.
    """
    if not (_SECONDS_MIN <= time.seconds <= _SECONDS_MAX and 0 <= time.nanos < 1_000_000_000):
        text = f"{field} is not a time of the years 1 to 9999"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field)
    return time.seconds * 1_000_000 + time.nanos // 1000


def paging(requested: int, default: int = PAGE_DEFAULT, maximum: int = PAGE_MAX) -> int:
    """Returns the number of items of a page (AIP-158)."""
    return page_size(requested, default, maximum)


KeyT = TypeVar("KeyT", bound=str)
ValueT = TypeVar("ValueT")


class ListRequest(Protocol):
    """A request for a page of a listing."""

    @property
    def page_size(self) -> int:
        """Most items; 0 for the default."""
        ...

    @property
    def page_token(self) -> str:
        """Token of the page; empty for the first one."""
        ...


async def page_of(
    cursor: Cursor[KeyT, ValueT], request: ListRequest, tokens: PageTokens, *, after: str = ""
) -> tuple[list[tuple[KeyT, ValueT]], str]:
    """Returns the page of a listing that a request asks for, and the token of the next page (empty: none).

    Args:
        cursor: the listing.
        request: gives the size of the page, and its token.
        tokens: of the listing.
        after: the key after which the first page begins.

    Raises:
        TarnError: INVALID for the page size, the token or `after`; as the cursor.
    """
    if len(after.encode()) > _AFTER_BYTES_MAX:
        text = f"after has more than {_AFTER_BYTES_MAX} bytes, so it is no name"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="after")
    count = paging(request.page_size)
    cursor.seek_behind(max(tokens.decode(request.page_token), after))
    page = await cursor.page(count)
    return page.items, "" if page.next_after is None else tokens.encode(page.next_after)


def started_after(after: str) -> dict[str, str]:
    """Returns `after` as an argument of page tokens; none if it is empty, as in tokens of releases without it."""
    return {"after": after} if after else {}


class CommitText(Protocol):
    """A request with the message and the metadata of a new commit."""

    @property
    def message(self) -> str:
        """Free text."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """Names and values."""
        ...


def checked_metadata(request: CommitText) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a new commit, sorted by name, after checking the size of message and metadata.

    Raises:
        TarnError: INVALID_ARGUMENT, METADATA_TOO_LARGE.
    """
    if len(request.message.encode()) > _MESSAGE_BYTES_MAX:
        text = f"a commit message has at most {_MESSAGE_BYTES_MAX} bytes"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    metadata = tuple(sorted(request.metadata.items()))
    if AUTHOR_TIME in request.metadata:
        text = (
            f"{AUTHOR_TIME} is set by Tarn; a commit takes the time of its author in `author_time`"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="metadata")
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata)
    if size > _METADATA_BYTES_MAX:
        text = f"commit metadata has at most {_METADATA_BYTES_MAX} bytes, not {size}"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return metadata


class RepositoryRequest(Protocol):
    """A request about one repository."""

    @property
    def repository_id(self) -> str:
        """Name of the repository."""
        ...


class RepositoryRules:
    """Finds the repository of a request, and judges changes by its rules (docs/user/rules.md)."""

    def __init__(
        self, repositories: Repositories, settings: RepositorySettings, views: BucketViews
    ) -> None:
        self._repositories = repositories
        self._settings = settings
        self.begin_view = views.begin_view
        self.begin_view_beside = views.begin_view_beside
        self.is_confirmed = views.is_confirmed
        self.confirm = views.confirm
        self.public_grant = views.public_grant

    async def enter(self, rule: Rule, request: Message, grant: Grant) -> Repository:
        """See `tarn.gate.permits.RepositoryGate`."""
        repository = await self._repositories.get(rule.repository_of(request))
        if (kind := rule.kind) is not None:
            await self._settings.require(repository, rule.branch_of(request), kind, grant)
        return repository

    def entered_until(self, rule: Rule, repository: Repository) -> float:
        """See `tarn.gate.permits.RepositoryGate`."""
        until = self._repositories.kept_until(repository.repository_id)
        return until if rule.kind is None else min(until, self._settings.rules_until(repository))

    def when_changed(self, tell: Callable[[], None]) -> None:
        """See `tarn.gate.permits.RepositoryGate`."""
        self._repositories.when_forgotten(tell)
        self._settings.when_changed(tell)


def require_features(features: FeatureGate, packed: bytes) -> None:
    """Refuses a checked entry or template with what replicas of the last release could damage.

    Raises:
        TarnError: FEATURE_LEVEL.
    """
    if not features.allows(Feature.OBJECT_TAGS) and has_tags(packed):
        features.require(Feature.OBJECT_TAGS)


def require_retention(features: FeatureGate, retention: Retention) -> None:
    """Refuses retention rules with which replicas of the last release could lose data.

    Raises:
        TarnError: FEATURE_LEVEL.
    """
    if retention != KEEP_EVERYTHING:
        # It would drop the rules, and would not see which commits have expired.
        features.require(Feature.NEW_FIELDS)
    if retention.has_exceptions:
        features.require(Feature.RETENTION_EXCEPTIONS)


def write_condition(message: pb.WriteCondition) -> WriteCondition:
    """Returns the condition of a write.

    An If-Match also needs the permission to read (`if_match` of the rule), because its outcome reveals the ETag.

    Raises:
        TarnError: INVALID for an invalid ETag, and for a condition that only deletes may have.
    """
    if message.HasField("size_bytes") or message.HasField("mtime_seconds"):
        text = "a size and a modification time are conditions of deletes only"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="condition")
    if message.WhichOneof("condition") != "if_match":
        return WriteCondition(if_none_match=message.if_none_match)
    return WriteCondition(if_match=_checked_etag(message.if_match))


def delete_condition(message: pb.WriteCondition) -> WriteCondition:
    """Returns the condition of a delete, whose caller may read the path.

    Raises:
        TarnError: INVALID for an invalid ETag, for no condition, and for a delete of what must not exist.
    """
    match message.WhichOneof("condition"):
        case "if_none_match":
            text = "a delete whose path must hold no object would delete nothing"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="condition")
        case "if_match":
            etag = _checked_etag(message.if_match)
        case _:
            etag = ""
    condition = WriteCondition(
        if_match=etag,
        size_bytes=message.size_bytes if message.HasField("size_bytes") else None,
        mtime_s=message.mtime_seconds if message.HasField("mtime_seconds") else None,
    )
    if not condition:
        text = "a tombstone is staged with a condition only; delete the path with Unstage"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="condition")
    return condition


def _checked_etag(etag: str) -> str:
    if not 0 < len(etag) <= IF_MATCH_BYTES_MAX:
        text = f"the ETag has {len(etag)} characters, not 1 to {IF_MATCH_BYTES_MAX}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    return etag
