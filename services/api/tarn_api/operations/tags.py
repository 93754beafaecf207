"""Tags."""

from __future__ import annotations

from tarn_api.context import Context
from tarn_api.operations.paging import amount_of, filled, pagination
from tarn_proto.graveler.v1 import tag_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = ["create_tag", "delete_tag", "get_tag", "list_tags"]


async def list_tags(context: Context, at: op.ListTags) -> schemas.RefList:
    """Lists tags."""
    call, after = context.read(), at.after or ""

    async def fetch(size: int, token: str) -> tuple[list[pb.Tag], str]:
        page = await context.graveler.list_tags(
            call,
            at.repository,
            prefix=at.prefix or "",
            page_size=size,
            page_token=token,
            after=after,
        )
        return list(page.tags), page.next_page_token

    found, has_more = await filled(fetch, amount_of(at.amount), lambda each: each.tag_id, after)
    names = [each.tag_id for each in found]
    return schemas.RefList(
        pagination=pagination(names, has_more=has_more), results=[_ref(each) for each in found]
    )


async def create_tag(context: Context, at: op.CreateTag, body: schemas.TagCreation) -> schemas.Ref:
    """Creates a tag on the commit of any ref. A tag never moves: `force` does not replace one."""
    return _ref(
        await context.graveler.create_tag(context.change(), at.repository, body.id, body.ref)
    )


async def get_tag(context: Context, at: op.GetTag) -> schemas.Ref:
    """Returns a tag."""
    return _ref(await context.graveler.get_tag(context.read(), at.repository, at.tag))


async def delete_tag(context: Context, at: op.DeleteTag) -> None:
    """Deletes a tag; its commit stays."""
    await context.graveler.delete_tag(context.change(), at.repository, at.tag)


def _ref(tag: pb.Tag) -> schemas.Ref:
    return schemas.Ref(id=tag.tag_id, commit_id=tag.commit_id)
