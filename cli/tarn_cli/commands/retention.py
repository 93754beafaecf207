"""`tarn retention`: the rules that say which commits keep their objects, and how long tags stay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarn_cli.objects.uri import parse_repository
from tarn_cli.options import not_empty
from tarn_cli.session import Group, Session, pass_session

if TYPE_CHECKING:  # imported when a command runs
    from tarn.collection.expiry_preview import ExpiryPreview
    from tarn_cli.connection import Connection

__all__ = ["retention"]

_FILE_BYTES_MAX = 1 << 20
_rules = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group(cls=Group)
def retention() -> None:
    """Retention: which commits keep their objects. docs/operate/retention.md explains the rules.

    Without rules every commit keeps its objects. A collection (`tarn gc run`) lets commits expire by the rules, for
    ever: their objects are deleted; they stay in the log, and can be compared.

    \b
    Examples:
      tarn retention check rules.json
      tarn retention preview lake --rules rules.json
      tarn retention set lake rules.json
      tarn retention show lake
    """


@retention.command()
@click.argument("repository")
@pass_session
def show(session: Session, repository: str) -> None:
    """Show the rules of a repository as JSON."""
    name = parse_repository(repository)
    found = session.run(lambda tarn: tarn.graveler.get_retention(tarn.call(), name))
    shown = {"repository": name, "rules": found.rules_json, "etag": found.etag}
    session.output.one(
        shown, found.rules_json.splitlines() or "no rules: every commit keeps its objects"
    )


@retention.command("set")
@click.argument("repository")
@click.argument("file", type=_rules, required=False)
@click.option(
    "--none", "is_none", is_flag=True, help="Remove all rules. Expired commits stay expired."
)
@click.option(
    "--if-match",
    default="",
    callback=not_empty,
    metavar="ETAG",
    help="Change only the settings with this ETag (`tarn retention show`).",
)
@pass_session
def set_rules(
    session: Session, repository: str, file: Path | None, is_none: bool, if_match: str
) -> None:
    """Replace the rules of a repository by those of FILE. The next mark of a collection applies them."""
    if is_none == (file is not None):
        raise click.UsageError("give either FILE or --none")
    name = parse_repository(repository)
    text = _checked(file) if file is not None else ""

    async def work(tarn: Connection) -> str:
        etag = if_match or (await tarn.graveler.get_retention(tarn.call(), name)).etag
        return await tarn.graveler.set_retention(tarn.call(), name, text, if_match=etag)

    etag = session.run(work)
    session.output.one({"repository": name, "etag": etag})


@retention.command()
@click.argument("file", type=_rules)
@pass_session
def check(session: Session, file: Path) -> None:
    """Check the rules of FILE, without a server."""
    session.output.one({"rules": _checked(file)}, _checked(file) or "no rules")


@retention.command()
@click.argument("repository")
@click.option("--rules", type=_rules, help="Rules to try.  [default: those of the repository]")
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="YAML file with the settings of the installation.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder of the installation on one machine.",
)
@pass_session
def preview(
    session: Session,
    repository: str,
    rules: Path | None,
    config_file: Path | None,
    data_dir: Path | None,
) -> None:
    """Show what would expire now; changes nothing.

    It runs where the block store can be reached, as `tarn gc run` does, and reads metadata only. Objects and bytes are
    upper bounds: an object that a commit loses may be in another one that keeps it.
    """
    from tarn.block.opening import open_blocks
    from tarn.collection.expiry_preview import preview_expiry
    from tarn.collection.progress import CollectionProgress
    from tarn.core.moments import iso_time
    from tarn.core.retention import parse_retention
    from tarn.rpc.process.system import SystemClock
    from tarn_cli.context import store_config

    name = parse_repository(repository)
    config = store_config(session, config_file, data_dir, beside_server=True)
    wanted = None if rules is None else parse_retention(_text(rules))

    async def work(tarn: Connection) -> ExpiryPreview:
        clock = SystemClock()
        blocks = await open_blocks(config, clock)
        try:
            return await preview_expiry(
                tarn.collections,
                tarn.call,
                name,
                blocks,
                clock.now_us(),
                CollectionProgress(),
                wanted,
            )
        finally:
            await blocks.close()

    found = session.run(work)
    expiring = dict(sorted(found.expiring.items()))
    shown: dict[str, object] = {
        "repository": name,
        "commits": found.commit_count,
        "expired_earlier": found.expired_count,
        "would_expire": sum(expiring.values()),
        "by_rule": expiring,
        "tags": found.tags,
        "objects_at_most": found.objects_max,
        "bytes_at_most": found.bytes_max,
    }
    if found.reads_known_since_us is not None:
        since_us = found.reads_known_since_us
        shown["reads_known_since"] = iso_time(since_us) if since_us else "never"
        shown["keeps_all_objects"] = found.keeps_all_objects
    session.output.one(shown)


def _checked(file: Path) -> str:
    from tarn.core.retention import parse_retention, retention_to_json

    return retention_to_json(parse_retention(_text(file)))


def _text(file: Path) -> str:
    with file.open("rb") as source:
        body = source.read(_FILE_BYTES_MAX)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{file} is no UTF-8 text") from error
