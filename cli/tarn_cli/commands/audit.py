"""`tarn audit`: searches the audit log of this machine. It reads the files, so it needs no Tarn that runs."""

from __future__ import annotations

from pathlib import Path

import click

from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import data_folder
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.plan import read_config
from tarn_cli.objects.times import local_now, parse_time
from tarn_cli.output import Record
from tarn_cli.session import Group, Session, pass_session

__all__ = ["audit"]

_COLUMNS = ("time", "principal", "operation", "resource", "outcome", "reason", "source")


@click.group(cls=Group)
def audit() -> None:
    """The audit log: who did what (docs/operate/audit.md)."""


@audit.command()
@config_option
@data_dir_option
@click.option("--user", default="", help="Who did it.")
@click.option("--operation", default="", help="Begins the operation, such as s3:Put.")
@click.option("--repository", default="", help="What it was done to.")
@click.option("--resource", default="", help="Any resource, or one above it, such as user/ada.")
@click.option(
    "--outcome",
    type=click.Choice(["ok", "denied", "failed", "unknown"]),
    default=None,
    help="How it ended.",
)
@click.option("--from", "since", default="", help="Not before this time.")
@click.option("--to", "until", default="", help="Before this time.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Most records.",
)
@pass_session
def search(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    user: str,
    operation: str,
    repository: str,
    resource: str,
    outcome: str | None,
    since: str,
    until: str,
    limit: int,
) -> None:
    """Search the files of this machine, newest record first. Those of other machines are there.

    \b
    Examples:
      tarn audit search --user ada --outcome denied
      tarn audit search --repository lake --operation s3:Delete --from "2 days ago"
    """
    from tarn.core.access.actions import repository_resource
    from tarn.rpc.process.system import SystemClock
    from tarn.telemetry.audit.searching import AuditQuery, search_audit

    folder = _folder(session, config_file, data_dir)
    now = local_now()
    query = AuditQuery(
        user=user,
        operation=operation,
        resource=repository_resource(repository) if repository else resource,
        outcome=outcome or "",
        from_us=parse_time(since, now).ToMicroseconds() if since else 0,
    )
    if until:
        query = query.before(parse_time(until, now).ToMicroseconds())
    records: list[Record] = []
    monotonic = SystemClock().monotonic
    while True:
        page = search_audit(folder, query, monotonic, records_max=limit - len(records))
        records += page.records
        # A page that its bounds end is followed by the next one, until there are enough records.
        if not page.stopped or page.before_us in (None, query.before_us) or len(records) >= limit:
            break
        query = query.before(page.before_us)
    session.output.many(records, _COLUMNS, empty="no record fits")
    if page.before_us is not None:
        session.output.remark("there are earlier records; --limit shows more, --to goes on")
    if page.unreadable:
        session.output.remark(f"{page.unreadable} lines are no records, and were passed over")


def _folder(session: Session, config_file: Path | None, data_dir: Path | None) -> Path:
    """Returns the folder of the files.

    Raises:
        CliError: NOT_FOUND: the installation keeps none on this machine.
    """
    folder = data_folder(session, config_file, data_dir)
    config = read_config(config_file, session.environment, None if config_file else folder)
    if config.audit.folder.is_dir():
        return config.audit.folder
    text = f"there are no files of an audit log in {config.audit.folder}"
    hint = "`audit.output: file` in the configuration makes them; with `stdout` the records are in the logs"
    raise CliError(Exit.NOT_FOUND, text, hint)
