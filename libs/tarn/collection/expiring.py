"""Expiry: lets commits and tags go by the retention rules of a repository, before a mark reads the roots.

Tags come last: in the plan of their run they keep their commits. So a person who misses a tag can create it again
before the next mark.

The plan is made here, because it needs the whole history; graveler writes it down. Commits that are in the history of
no branch expire only if notes in the bucket prove that they were the head of one: another may belong to an operation
that has not moved its branch yet (docs/design/retention.md).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from tarn.block.keys import LIST_LIMIT_MAX
from tarn.block.paging import pages_below
from tarn.block.port import BlockStore
from tarn.collection.marking import Lake
from tarn.collection.progress import CollectionProgress
from tarn.core.commit import NOTE_PATH, NOTES
from tarn.core.expiry import EXPIRE_MAX
from tarn.core.expiry_plan import History, HistoryCommit, HistoryTag, plan_expiry, plan_tags
from tarn.core.ids import CommitId
from tarn.core.retention import Retention, parse_retention
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = [
    "Expired",
    "HistoryPages",
    "HistorySource",
    "expire",
    "published_commits",
    "read_history",
]


class HistoryPages(Protocol):
    """The history of a repository that graveler sends."""

    def history_pages(self) -> AsyncGenerator[pb.ListHistoryResponse, None]:
        """Yields all pages, in order; a normal end means that they are complete."""
        ...


class HistorySource(HistoryPages, Protocol):
    """The history of a repository, and the calls by which its commits and tags expire."""

    async def expire(self, commits: Mapping[CommitId, str]) -> int:
        """Lets up to `EXPIRE_MAX` commits expire, each by the rule that is named; returns their number."""
        ...

    async def expire_tags(self, tags: Sequence[pb.ExpiringTag]) -> int:
        """Deletes up to `EXPIRE_MAX` tags; returns their number."""
        ...


@dataclass(slots=True)
class Expired:
    """The numbers of commits and of tags that have expired."""

    commits: int = 0
    tags: int = 0

    def __str__(self) -> str:
        counts = [(self.commits, "commit"), (self.tags, "tag")]
        told = [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts if count]
        return f"{' and '.join(told)} expired" if told else ""


async def read_history(
    source: HistoryPages, progress: CollectionProgress, rules: Retention | None = None
) -> tuple[History, Retention]:
    """Returns the history of a repository without `published`, and the rules. Needs some 500 bytes for each commit.

    Reads no more than the first page if there are no rules.

    Args:
        source: the pages.
        progress: counts them.
        rules: instead of those of the repository.

    Raises:
        TarnError: any error of the source; INVALID: rules that this version does not know.
    """
    history = History()
    retention = rules
    async with aclosing(source.history_pages()) as pages:
        async for page in pages:
            if retention is None:
                retention = parse_retention(page.retention_json)
            if not retention:
                return history, retention
            history.heads.update((each.branch_id, CommitId(each.commit_id)) for each in page.heads)
            history.protected.update(map(CommitId, page.protected_commit_ids))
            for tag in page.tags:
                history.tags[tag.tag_id] = HistoryTag(
                    CommitId(tag.commit_id), tag.create_time_us, tag.nonce
                )
            for each in page.commits:
                history.commits[CommitId(each.commit_id)] = HistoryCommit(
                    tuple(map(CommitId, each.parent_ids)),
                    each.create_time_us,
                    each.generation,
                    each.metarange_id,
                    each.is_expired,
                )
            progress.done += 1
    return history, retention or Retention()


async def published_commits(
    blocks: BlockStore, namespace: str, progress: CollectionProgress
) -> set[CommitId]:
    """Returns the commits that were the head of a branch, as far as the notes in the bucket tell."""
    found: set[CommitId] = set()
    async for page in pages_below(blocks, namespace, NOTES, LIST_LIMIT_MAX):
        names = (NOTE_PATH.fullmatch(info.path) for info in page)
        found.update(CommitId(match[3]) for match in names if match)
        progress.done += len(page)
    return found


async def expire(lake: Lake, source: HistorySource, progress: CollectionProgress) -> Expired:
    """Lets the commits of a repository expire whose time has come, and then deletes such tags.

    When it returns, the rows of all commits are durable. The roots must be read after that (rule 14).

    Raises:
        TarnError: CORRUPT: the history lacks a commit; any error of the source or the store. Commits and tags that have
            expired until then stay expired.
    """
    progress.begin("read the history")
    history, retention = await read_history(source, progress)
    if not retention:
        return Expired()
    if retention.detached_days is not None:
        progress.begin("read which commits were published")
        history.published = await published_commits(lake.blocks, lake.namespace, progress)
    now_us = lake.clock.now_us()
    planned = iter(plan_expiry(history, retention, now_us).items())
    progress.begin("let commits expire")
    found = Expired()
    while some := dict(islice(planned, EXPIRE_MAX)):
        found.commits += await source.expire(some)
        progress.done += len(some)
    progress.begin("delete old tags")
    tags = (
        _expiring(tag_id, history.tags[tag_id], rule)
        for tag_id, rule in plan_tags(history, retention, now_us).items()
    )
    while batch := list(islice(tags, EXPIRE_MAX)):
        found.tags += await source.expire_tags(batch)
        progress.done += len(batch)
    return found


def _expiring(tag_id: str, tag: HistoryTag, rule: str) -> pb.ExpiringTag:
    life = pb.HistoryTag(
        tag_id=tag_id,
        commit_id=tag.commit_id,
        create_time_us=tag.create_time_us,
        nonce=tag.nonce,
    )
    return pb.ExpiringTag(tag=life, rule=rule)
