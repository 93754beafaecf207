"""`tarn bucket`: bucket names of the S3 endpoint that show a branch, a tag or a commit of a repository."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO

import click

from tarn.core.cors import CORS_BYTES_MAX, cors_to_json, parse_cors
from tarn.core.errors import TarnError
from tarn_cli.objects.uri import parse_ref, parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_proto.graveler.v1.bucket_service_pb2 import BucketView

if TYPE_CHECKING:  # imported when a command runs
    from tarn_cli.connection import Connection

__all__ = ["bucket"]

_COLUMNS = ("bucket", "shows", "public", "created", "etag")


def _record(view: BucketView) -> Record:
    return {
        "bucket": view.bucket_id,
        "shows": f"{view.repository_id}/{view.ref}",
        "public": view.public_read,
        "created": shown_time(view.create_time),
        "etag": view.etag,
    }


_name = click.argument("bucket_id", metavar="BUCKET")
_target = click.option(
    "--to", "target", required=True, metavar="REPOSITORY/REF", help="What the bucket shows."
)
_if_match = click.option(
    "--if-match",
    "etag",
    default="",
    help="Do it only if the view has this ETag (`tarn bucket show`).",
)


@click.group(cls=Group)
def bucket() -> None:
    """Bucket views: bucket names whose keys are plain paths of one branch, tag or commit.

    \b
    Examples:
      tarn bucket create sales --to lake/main
      aws s3 cp report.csv s3://sales/2026/report.csv
      tarn bucket point sales --to lake/experiment
    """


@bucket.command()
@_name
@_target
@click.option(
    "--public-read",
    is_flag=True,
    help="Let everyone read and list it, without an access key (`tarn bucket public`).",
)
@pass_session
def create(session: Session, bucket_id: str, target: str, public_read: bool) -> None:
    """Create a bucket that shows a branch, a tag or a commit.

    One that shows a branch takes writes; the others are read-only.
    """
    name, uri = parse_repository(bucket_id), parse_ref(target)
    view = session.run(
        lambda tarn: tarn.graveler.create_bucket_view(
            tarn.call(), name, uri.repository, uri.ref, public_read=public_read
        )
    )
    session.output.one(_record(view))


@bucket.command(name="list")
@click.option("--prefix", default="", help="Only names with this prefix.")
@pass_session
def list_(session: Session, prefix: str) -> None:
    """List the bucket views of repositories that you may read."""
    from tarn_cli.connection import collect

    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_buckets(
                tarn.call(), prefix=prefix, views_only=True, page_size=size, page_token=token
            ),
            lambda page: [each.view for each in page.buckets],
        )
    )
    session.output.many(map(_record, found), _COLUMNS, empty="no bucket views")


@bucket.command()
@_name
@pass_session
def show(session: Session, bucket_id: str) -> None:
    """Show what one bucket view shows."""
    name = parse_repository(bucket_id)
    view = session.run(lambda tarn: tarn.graveler.get_bucket_view(tarn.call(), name))
    session.output.one(_record(view))


@bucket.command()
@_name
@_target
@_if_match
@pass_session
def point(session: Session, bucket_id: str, target: str, etag: str) -> None:
    """Have a bucket show something else, from now on.

    Requests that begin after this command has ended use the new target, in every gateway. One that runs beside it uses
    either, as a whole, or is refused with 503 and to be repeated. A public bucket stays public.
    """
    name, uri = parse_repository(bucket_id), parse_ref(target)
    view = session.run(
        lambda tarn: tarn.graveler.point_bucket_view(
            tarn.call(), name, uri.repository, uri.ref, etag=etag
        )
    )
    session.output.one(_record(view))


@bucket.command()
@_name
@click.argument("state", type=click.Choice(["on", "off"]))
@_if_match
@pass_session
def public(session: Session, bucket_id: str, state: str, etag: str) -> None:
    """Let everyone read and list what a bucket shows, without an access key; or end that.

    Writes need an access key as ever. After `off` has ended, no new request without a key is answered. Gateways notice
    `on` within five seconds.
    """
    name = parse_repository(bucket_id)
    view = session.run(
        lambda tarn: tarn.graveler.set_bucket_view_public_read(
            tarn.call(), name, state == "on", etag=etag
        )
    )
    session.output.one(_record(view))


@bucket.command()
@_name
@_if_match
@pass_session
def delete(session: Session, bucket_id: str, etag: str) -> None:
    """Delete a bucket view. The repository and the ref that it shows stay."""
    name = parse_repository(bucket_id)
    session.run(lambda tarn: tarn.graveler.delete_bucket_view(tarn.call(), name, etag=etag))
    session.output.remark(f"deleted bucket view {name}; what it showed is untouched")


@bucket.group()
def cors() -> None:
    """CORS rules: which web pages may use a bucket from a browser. docs/user/browsers.md explains them.

    A bucket is a repository or a bucket view; each has rules of its own. Rules have the JSON of `aws s3api
    put-bucket-cors`. Gateways use new rules within five seconds.

    \b
    Examples:
      tarn bucket cors set sales cors.json
      tarn bucket cors show sales
      tarn bucket cors delete sales
    """


@cors.command("show")
@_name
@pass_session
def show_cors(session: Session, bucket_id: str) -> None:
    """Show the CORS rules of a bucket as JSON."""
    name = parse_repository(bucket_id)
    found = session.run(lambda tarn: tarn.graveler.get_bucket_cors(tarn.call(), name)).rules_json
    shown = json.dumps(json.loads(found), indent=2, ensure_ascii=False) if found else ""
    session.output.one(
        {"bucket": name, "rules": found}, shown.splitlines() or "no rules: browsers may not use it"
    )


@cors.command("set")
@_name
@click.argument("file", type=click.File("rb"))
@pass_session
def set_cors(session: Session, bucket_id: str, file: BinaryIO) -> None:
    """Replace the CORS rules of a bucket by those of FILE (`-`: standard input)."""
    _set_cors(session, bucket_id, _rules_of(file))


@cors.command("delete")
@_name
@pass_session
def delete_cors(session: Session, bucket_id: str) -> None:
    """Remove all CORS rules of a bucket."""
    _set_cors(session, bucket_id, "")


def _rules_of(file: BinaryIO) -> str:
    given = file.read(8 * CORS_BYTES_MAX + 1)  # what is stored has no white space
    try:
        if len(given) > 8 * CORS_BYTES_MAX:
            raise click.ClickException(f"the rules are longer than {8 * CORS_BYTES_MAX} bytes")
        text = json.dumps(json.loads(given), separators=(",", ":"), ensure_ascii=False)
        return cors_to_json(parse_cors(text))
    except (ValueError, RecursionError):
        raise click.ClickException("the rules are not JSON") from None
    except TarnError as error:
        raise click.ClickException(error.message) from None


def _set_cors(session: Session, bucket_id: str, rules_json: str) -> None:
    name = parse_repository(bucket_id)

    async def work(tarn: Connection) -> None:
        is_view = (await tarn.graveler.get_bucket_cors(tarn.call(), name)).is_view
        await tarn.graveler.set_bucket_cors(tarn.call(), name, rules_json, is_view=is_view)

    session.run(work)
    count = len(parse_cors(rules_json))
    session.output.remark(
        f"bucket {name} has {count} CORS rules" if count else f"removed the CORS rules of {name}"
    )
