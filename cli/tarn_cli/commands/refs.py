"""`tarn refs`: lists the names of a repository, and resolves an expression such as `main~2`."""

from __future__ import annotations

import click

from tarn.core.errors import Reason, TarnError
from tarn.core.ids import parse_branch_id
from tarn_cli.commands.commit import commit_record
from tarn_cli.objects.uri import parse_ref, parse_ref_of, parse_repository
from tarn_cli.output import Record
from tarn_cli.session import Group, Session, pass_session

__all__ = ["refs"]


@click.group(cls=Group)
def refs() -> None:
    """Refs: branches, tags, commit ids or unique prefixes of one, with `~N`, `^N` and `@{…}`."""


@refs.command(name="list")
@click.argument("repository")
@click.option("--hidden", is_flag=True, help="Also branches that the repository's rules hide.")
@pass_session
def list_(session: Session, repository: str, hidden: bool) -> None:
    """List the branches and tags of a repository."""
    from tarn_cli.connection import Connection, collect

    name = parse_repository(repository)

    async def work(tarn: Connection) -> list[Record]:
        branches = await collect(
            lambda size, token: tarn.graveler.list_branches(
                tarn.call(), name, page_size=size, page_token=token, include_hidden=hidden
            ),
            lambda page: page.branches,
        )
        tags = await collect(
            lambda size, token: tarn.graveler.list_tags(
                tarn.call(), name, page_size=size, page_token=token
            ),
            lambda page: page.tags,
        )
        found: list[Record] = [
            {"kind": "branch", "ref": each.branch_id, "commit": each.commit_id} for each in branches
        ]
        found += [{"kind": "tag", "ref": each.tag_id, "commit": each.commit_id} for each in tags]
        return found

    session.output.many(session.run(work), ("kind", "ref", "commit"), empty="no refs")


@refs.command()
@click.argument("ref_uri", metavar="REPOSITORY/REF")
@pass_session
def show(session: Session, ref_uri: str) -> None:
    """Show the commit that a ref names.

    A branch or a tag is preferred to a short commit id of the same letters; a remark then names that commit.

    \b
    Example:
      tarn refs show lake/main~2
    """
    uri = parse_ref(ref_uri)
    found = session.run(
        lambda tarn: tarn.graveler.resolve_ref(tarn.call(), uri.repository, uri.ref)
    )
    record = commit_record(found.commit)
    if found.shadowed_commit_id:
        record = {**record, "shadowed_commit": found.shadowed_commit_id}
        session.output.remark(
            f"{uri.ref} is also a short id of commit {found.shadowed_commit_id}; the branch or tag of that name is "
            "shown. Write more of the id to mean the commit."
        )
    session.output.one(record)


@refs.command()
@click.argument("ref_uri", metavar="REPOSITORY/REF")
@pass_session
def size(session: Session, ref_uri: str) -> None:
    """Show how many objects a ref has, and their bytes; of a branch also with its uncommitted changes.

    It is what a full copy would have: in the bucket, refs share blocks.

    \b
    Example:
      tarn refs size lake/main
    """
    from tarn.client.ref_size import RefSize, size_of_branch, size_of_ref
    from tarn_cli.connection import Connection

    uri = parse_ref(ref_uri)

    async def work(tarn: Connection) -> RefSize:
        try:
            parse_branch_id(uri.ref)
            await tarn.graveler.get_branch(tarn.call(), uri.repository, uri.ref)
        except TarnError as error:
            if error.reason not in (Reason.BRANCH_NOT_FOUND, Reason.INVALID_ARGUMENT):
                raise
            return await size_of_ref(tarn.graveler, tarn.call(), uri.repository, uri.ref)
        return await size_of_branch(tarn.graveler, tarn.call(), uri.repository, uri.ref)

    found = session.run(work)
    session.output.one(
        {
            "commit": found.commit_id,
            "committed_objects": found.committed_count,
            "committed_bytes": found.committed_bytes,
            "objects": found.object_count,
            "bytes": found.object_bytes,
            "complete": found.is_complete,
        }
    )
    if not found.is_complete:
        session.output.remark(
            "only some uncommitted changes were counted: there are very many; a commit makes them exact"
        )


@refs.command(name="merge-base")
@click.argument("into_uri", metavar="REPOSITORY/INTO")
@click.argument("source_ref", metavar="SOURCE")
@pass_session
def merge_base(session: Session, into_uri: str, source_ref: str) -> None:
    """Show the merge base of two refs: the newest commit that both contain.

    After criss-cross merges there are several; unrelated histories have none.

    \b
    Example:
      tarn refs merge-base lake/main feature
    """
    into = parse_ref(into_uri)
    source = parse_ref_of(source_ref, into.repository)
    found = session.run(
        lambda tarn: tarn.graveler.find_merge_base(tarn.call(), into.repository, into.ref, source)
    )
    record: Record = {
        "into": found.destination_commit_id,
        "source": found.source_commit_id,
        "bases": list(found.base_commit_ids),
    }
    session.output.one(record, found.base_commit_ids or "no common commit")
