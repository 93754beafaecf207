"""The effect that retention rules would have now, estimated from metadata in the bucket: nothing is changed.

Opens the metaranges of all commits, and no range: a metarange tells the objects and bytes of each range. So the numbers
are upper bounds: an object may be in a range that goes and in another one that stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockStore, read_whole
from tarn.block.rangefile import metarange_path, metarange_sizes
from tarn.client.collections import CollectionClient
from tarn.collection.expiring import published_commits, read_history
from tarn.collection.other_store import refuse_other_store
from tarn.collection.progress import CollectionProgress
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.expiry_plan import plan_expiry, plan_tags
from tarn.core.ids import MetarangeId
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.core.retention import Retention
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["ExpiryPreview", "preview_expiry"]

_OPENED_AT_ONCE = 8


@dataclass(slots=True)
class ExpiryPreview:
    """The effect that rules would have now.

    Attributes:
        commit_count: commits that have not expired yet.
        expired_count: those that expired earlier.
        expiring: number of commits that would expire now, by rule.
        tags: tags that would be deleted now, each with the rule.
        objects_max: most objects that a collection could delete because of that.
        bytes_max: their bytes.
        reads_known_since_us: since when the journal of reads is whole, microseconds since the epoch; 0: there is none;
            None: no rule needs it.
        keeps_all_objects: the journal of reads does not cover all the days of the rule, so it keeps every object.
    """

    commit_count: int = 0
    expired_count: int = 0
    expiring: Counter[str] = field(default_factory=Counter)
    tags: dict[str, str] = field(default_factory=dict)
    objects_max: int = 0
    bytes_max: int = 0
    reads_known_since_us: int | None = None
    keeps_all_objects: bool = False


class _Reader:
    """The history of a repository, read without a run."""

    def __init__(
        self,
        client: CollectionClient,
        call: Callable[[], Call],
        repository_id: str,
        rows_max: int,
    ) -> None:
        self._client = client
        self._call = call
        self._repository_id = repository_id
        self._rows_max = rows_max
        self.reads_known_since_us = 0

    async def history_pages(self) -> AsyncGenerator[pb.ListHistoryResponse, None]:
        token, count = "", 0
        while True:
            page = await self._client.list_history(
                self._call(), self._repository_id, page_token=token
            )
            count += len(page.commits) + len(page.heads) + len(page.tags)
            if count > self._rows_max > 0:
                text = (
                    f"{self._repository_id} has more than {self._rows_max:,} commits, branches and tags, "
                    "too many to be read here; `tarn retention preview` has no limit"
                )
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
            self.reads_known_since_us = self.reads_known_since_us or page.reads_known_since_us
            yield page
            token = page.next_page_token
            if not token:
                return


async def preview_expiry(
    client: CollectionClient,
    call: Callable[[], Call],
    repository_id: str,
    blocks: BlockStore,
    now_us: int,
    progress: CollectionProgress,
    retention: Retention | None = None,
    *,
    rows_max: int = 0,
) -> ExpiryPreview:
    """Returns the effect that the rules of a repository, or other rules, would have now.

    Args:
        client: of graveler's collections.
        call: makes the context of each call.
        repository_id: the repository.
        blocks: the block store of the installation.
        now_us: microseconds since the epoch.
        progress: updated.
        retention: the rules; None: those of the repository.
        rows_max: most commits, branches and tags that are read; 0: no limit.

    Raises:
        TarnError: any error of graveler or the store; CORRUPT: the history lacks a commit, or a metarange cannot be
            read; FAILED_PRECONDITION: the block store is that of another installation; INVALID: there are too
            many rows.
    """
    namespace = (await client.get(call(), repository_id)).storage_namespace
    await refuse_other_store(blocks, namespace, repository_id)
    progress.begin("read the history")
    reader = _Reader(client, call, repository_id, rows_max)
    history, rules = await read_history(reader, progress, retention)
    if rules.detached_days is not None:
        progress.begin("read which commits were published")
        history.published = await published_commits(blocks, namespace, progress)
    planned = plan_expiry(history, rules, now_us)
    found = ExpiryPreview(
        expiring=Counter(planned.values()), tags=plan_tags(history, rules, now_us)
    )
    if since_us := rules.objects.read_since_us(now_us):
        found.reads_known_since_us = reader.reads_known_since_us
        found.keeps_all_objects = not 0 < reader.reads_known_since_us <= since_us
    kept: set[str] = set()
    going: set[str] = set()
    for commit_id, commit in history.commits.items():
        found.expired_count += commit.is_expired
        if not commit.is_expired:
            found.commit_count += 1
            (going if commit_id in planned else kept).add(commit.metarange_id)
    if planned:
        await _count_objects(found, blocks, namespace, kept, going, progress)
    return found


async def _count_objects(
    found: ExpiryPreview,
    blocks: BlockStore,
    namespace: str,
    kept: set[str],
    going: set[str],
    progress: CollectionProgress,
) -> None:
    """Counts the objects of the listings that go, but for ranges that a kept listing has, too."""
    staying: set[str] = set()
    ranges: dict[str, tuple[int, int]] = {}

    async def work(metarange_id: str) -> None:
        body = await read_whole(
            blocks, BlockKey(namespace, metarange_path(MetarangeId(metarange_id)))
        )
        for range_id, count, size in metarange_sizes(MetarangeId(metarange_id), body):
            if metarange_id in kept:
                staying.add(range_id)
            else:
                ranges[range_id] = (count, size)
        progress.done += 1

    wanted = sorted((kept | going) - {EMPTY_METARANGE.metarange_id})
    progress.begin("open listings", len(wanted))
    await for_each(wanted, work, _OPENED_AT_ONCE)
    for range_id, (count, size) in ranges.items():
        if range_id not in staying:
            found.objects_max += count
            found.bytes_max += size
