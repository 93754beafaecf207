"""`tarn tag`: names of commits that never move."""

from __future__ import annotations

import click

from tarn.core.ids import parse_tag_id
from tarn_cli.objects.uri import parse_ref, parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_proto.graveler.v1.tag_service_pb2 import Tag

__all__ = ["tag"]


def _record(found: Tag) -> Record:
    record = {
        "tag": found.tag_id,
        "commit": found.commit_id,
        "created": shown_time(found.create_time),
    }
    if found.HasField("expire_time"):
        record["deleted_after"] = shown_time(found.expire_time)
        record["by_rule"] = found.expire_rule
    return record


@click.group(cls=Group)
def tag() -> None:
    """Tags: names of commits that never move."""


@tag.command()
@click.argument("tag_uri", metavar="REPOSITORY/TAG")
@click.option(
    "--from",
    "--ref",
    "source",
    default="",
    help="Ref whose commit to name.  [default: the default branch]",
)
@pass_session
def create(session: Session, tag_uri: str, source: str) -> None:
    """Create a tag for the commit of any ref.

    \b
    Example:
      tarn tag create lake/v1 --from main
    """
    uri = parse_ref(tag_uri)
    name = parse_tag_id(uri.ref)
    found = session.run(
        lambda tarn: tarn.graveler.create_tag(tarn.call(), uri.repository, name, source)
    )
    session.output.one(_record(found))


@tag.command(name="list")
@click.argument("repository")
@click.option("--prefix", default="", help="Only names with this prefix.")
@pass_session
def list_(session: Session, repository: str, prefix: str) -> None:
    """List the tags of a repository."""
    from tarn_cli.connection import collect

    name = parse_repository(repository)
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_tags(
                tarn.call(), name, prefix=prefix, page_size=size, page_token=token
            ),
            lambda page: page.tags,
        )
    )
    session.output.many(map(_record, found), ("tag", "commit", "created"), empty="no tags")


@tag.command()
@click.argument("tag_uri", metavar="REPOSITORY/TAG")
@pass_session
def show(session: Session, tag_uri: str) -> None:
    """Show one tag, and when a retention rule lets a collection delete it (`tarn retention show`)."""
    uri = parse_ref(tag_uri)
    found = session.run(lambda tarn: tarn.graveler.get_tag(tarn.call(), uri.repository, uri.ref))
    session.output.one(_record(found))


@tag.command()
@click.argument("tag_uri", metavar="REPOSITORY/TAG")
@pass_session
def delete(session: Session, tag_uri: str) -> None:
    """Delete a tag. Its commit stays."""
    uri = parse_ref(tag_uri)
    session.run(lambda tarn: tarn.graveler.delete_tag(tarn.call(), uri.repository, uri.ref))
    session.output.remark(f"deleted {uri}")
