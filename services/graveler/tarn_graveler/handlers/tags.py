"""TagService: the fixed names of commits."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.core.clock import DAY_US
from tarn.core.ids import (
    parse_new_tag_id,
    parse_tag_id,
)
from tarn.core.retention import TagRule
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository, Tag
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import page_of, started_after, timestamp
from tarn_proto.graveler.v1 import tag_service_pb2 as tag_pb

__all__ = ["TagHandler"]


def _tag_message(tag_id: str, tag: Tag, rule: TagRule | None = None) -> tag_pb.Tag:
    message = tag_pb.Tag(
        tag_id=tag_id, commit_id=tag.commit_id, create_time=timestamp(tag.create_time_us)
    )
    if rule is not None:
        message.expire_time.CopyFrom(timestamp(tag.create_time_us + rule.keep_days * DAY_US))
        message.expire_rule = str(rule)
    return message


class TagHandler:
    """Answers `tarn.graveler.v1.TagService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._tags = graveler.tags
        self._settings = graveler.settings
        self._iterators = graveler.iterators
        self._refs = graveler.refs
        self._page_keys = graveler.page_keys

    async def CreateTag(
        self, request: tag_pb.CreateTagRequest, permit: RepositoryPermit
    ) -> tag_pb.CreateTagResponse:
        """Creates a tag at the commit of any ref."""
        tag_id = parse_new_tag_id(request.tag_id)
        repository = permit.repository
        source = request.source_ref or repository.default_branch
        permit.require_further("source", source_ref=source)
        commit_id = await self._refs.commit_of(repository, source)
        tag = await self._tags.create(repository, tag_id, commit_id)
        return tag_pb.CreateTagResponse(tag=_tag_message(tag_id, tag))

    async def GetTag(
        self, request: tag_pb.GetTagRequest, permit: RepositoryPermit
    ) -> tag_pb.GetTagResponse:
        """Returns one tag."""
        tag_id = parse_tag_id(request.tag_id)
        repository = permit.repository
        tag = await self._tags.get(repository, tag_id)
        (rule,) = await self._rules_of(repository, [tag_id])
        return tag_pb.GetTagResponse(tag=_tag_message(tag_id, tag, rule))

    async def ListTags(
        self, request: tag_pb.ListTagsRequest, permit: RepositoryPermit
    ) -> tag_pb.ListTagsResponse:
        """Returns one page of tags."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "TagService.ListTags",
            repository=request.repository_id,
            prefix=request.prefix,
            **started_after(request.after),
        )
        cursor = self._iterators.tags(repository, prefix=request.prefix)
        found, next_token = await page_of(cursor, request, tokens, after=request.after)
        rules = await self._rules_of(repository, [name for name, _ in found])
        lines = [
            _tag_message(name, tag, rule) for (name, tag), rule in zip(found, rules, strict=True)
        ]
        return tag_pb.ListTagsResponse(tags=lines, next_page_token=next_token)

    async def DeleteTag(
        self, request: tag_pb.DeleteTagRequest, permit: RepositoryPermit
    ) -> tag_pb.DeleteTagResponse:
        """Deletes a tag; its commit stays."""
        tag_id = parse_tag_id(request.tag_id)
        repository = permit.repository
        await self._tags.delete(repository, tag_id)
        return tag_pb.DeleteTagResponse()

    async def _rules_of(
        self, repository: Repository, tag_ids: Sequence[str]
    ) -> list[TagRule | None]:
        """Returns the retention rule of each tag; None: it stays for ever."""
        retention = (await self._settings.read(repository)).retention
        return retention.rules_of_tags(tag_ids)
