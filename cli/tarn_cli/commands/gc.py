"""`tarn gc`: deletes blocks to which nothing refers.

It opens the configured block store itself, as `tarn fsck` does, because graveler never lists or deletes blocks. It
asks graveler for the roots, and for the right to delete, as the user.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tarn_cli.collecting import collect, collection_options, plan_of
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import shown_time
from tarn_cli.session import Group, Session, pass_session

if TYPE_CHECKING:  # imported when a command runs
    from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["gc"]


@click.group(cls=Group)
def gc() -> None:
    """Garbage collection: delete blocks to which nothing refers. docs/operate/gc.md explains it.

    A collection has two phases. A mark finds unreferenced blocks that are older than a day, and writes them to
    quarantine. A sweep, after a grace time, deletes those that are still unreferenced. So run it once a day: each
    run does what is due.

    \b
    Examples:
      tarn gc run --dry-run lake
      tarn gc run
      tarn gc status lake
      tarn gc hold lake 2h
    """


@gc.command()
@click.argument("repositories", nargs=-1)
@collection_options
@click.option(
    "--temporary",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Folder for temporary files, some 100 bytes for each block.  [default: that of the system]",
)
@pass_session
def run(
    session: Session, /, repositories: tuple[str, ...], temporary: Path | None, **values: object
) -> None:
    """Do what is due in these repositories, or in all: sweep the last mark, or mark.

    It runs where the block store can be reached, with the configuration of the services, and needs an admin's key.
    Ctrl-C stops it between two batches; the next run goes on. For large lakes there is the same in Spark:
    docs/operate/gc.md.
    """
    from tarn.lifecycle.engine import InProcess

    collect(session, plan_of(session, repositories, values), InProcess(), temporary)


@gc.command()
@click.argument("repository")
@pass_session
def status(session: Session, repository: str) -> None:
    """Show what a collection does, what it did last, and when it may go on."""
    name = parse_repository(repository)
    record = session.run(lambda tarn: tarn.collections.get(tarn.call(), name))
    session.output.one(_status(record))


@gc.command()
@click.argument("repository")
@click.argument("duration")
@pass_session
def hold(session: Session, repository: str, duration: str) -> None:
    """Let no collection of a repository begin or go on for a while, at most 7 days: before a backup or a restore.

    \b
    Example:
      tarn gc hold lake 2h
    """
    from tarn.config.values import Sort, Within, parse_value

    name = parse_repository(repository)
    try:
        milliseconds = parse_value(Within(Sort.DURATION, "1s", "168h"), duration, Path())
    except ValueError as error:
        raise click.UsageError(f"DURATION {error}") from error
    assert isinstance(milliseconds, int)
    seconds = milliseconds // 1000
    record = session.run(lambda tarn: tarn.collections.hold(tarn.call(), name, seconds))
    session.output.one({"repository": name, "held_until": shown_time(record.hold_end_time)})


@gc.command()
@click.argument("repository")
@pass_session
def release(session: Session, repository: str) -> None:
    """End a hold."""
    name = parse_repository(repository)
    session.run(lambda tarn: tarn.collections.hold(tarn.call(), name, 0))
    session.output.remark(f"collections of {name} may run again")


def _status(record: pb.Collection) -> dict[str, object]:
    from tarn_proto.graveler.v1 import collection_service_pb2 as pb

    phase = pb.CollectionPhase.Name(record.phase).removeprefix("COLLECTION_PHASE_").lower()
    shown: dict[str, object] = {"repository": record.repository_id, "phase": phase}
    if record.run_id:
        shown["run"] = record.run_id
        shown["lease_until"] = shown_time(record.lease_end_time)
    if record.mark_run_id:
        shown["mark"] = record.mark_run_id
        shown["sweep_from"] = shown_time(record.sweep_not_before_time)
    if record.HasField("hold_end_time"):
        shown["held_until"] = shown_time(record.hold_end_time)
    for name in ("last_mark", "last_sweep"):
        if record.HasField(name):
            shown[name] = _shown_totals(getattr(record, name))
    return shown


def _shown_totals(totals: pb.CollectionTotals) -> dict[str, object]:
    return {
        "run": totals.run_id,
        "end": shown_time(totals.end_time),
        "live": totals.live_count,
        "live_bytes": totals.live_bytes,
        "candidates": totals.candidate_count,
        "candidate_bytes": totals.candidate_bytes,
        "deleted": totals.deleted_count,
        "deleted_bytes": totals.deleted_bytes,
        "failed": totals.failed_count,
    }
