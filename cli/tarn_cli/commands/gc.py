"""`tarn gc`: deletes blocks to which nothing refers.

It opens the configured block store itself, as `tarn fsck` does, because graveler never lists or deletes blocks. It
asks graveler for the roots, and for the right to delete, as the user.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tarn.core.byte_sizes import shown_size
from tarn_cli.collecting import collect, collection_options, plan_of
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.node.plan import read_config
from tarn_cli.objects.uri import parse_repository
from tarn_cli.output import shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.spark import check_spark_options, spark_on, spark_options

if TYPE_CHECKING:  # imported when a command runs
    from tarn.collection.quarantine import Tally
    from tarn.collection.run_summary import RunSummary
    from tarn.config import Config
    from tarn_cli.connection import Connection
    from tarn_proto.graveler.v1 import collection_service_pb2 as pb
    from tarn_proto.graveler.v1.erasure_service_pb2 import DoomedNamespace

__all__ = ["gc"]


@click.group(cls=Group)
def gc() -> None:
    """Garbage collection: delete blocks to which nothing refers. docs/operate/gc.md explains it.

    A collection has two phases. A mark finds unreferenced blocks that are older than a day, and writes them to
    quarantine. A sweep, after a grace time, deletes those that are still unreferenced. So run it once a day: each run
    does the phase that is due.

    \b
    Examples:
      tarn gc run --dry-run lake
      tarn gc run
      tarn gc status lake
      tarn gc report lake --html gc.html
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
@spark_options("Find and delete on Spark, for large lakes: docs/operate/gc.md.")
@pass_session
def run(
    session: Session,
    /,
    repositories: tuple[str, ...],
    temporary: Path | None,
    on_spark: bool,
    master: str,
    settings: dict[str, str],
    **values: object,
) -> None:
    """Do the phase that is due in these repositories, or in all: sweep the last mark, or mark.

    Without REPOSITORIES it also deletes the data of repositories that were deleted with them, after their grace time.

    It runs where the block store can be reached, with the configuration of the services, and needs an admin's key.
    Ctrl-C stops it between two batches; the next run goes on.
    """
    check_spark_options(on_spark=on_spark, master=master, settings=settings)
    plan = plan_of(session, repositories, values)
    if on_spark:
        with spark_on(plan.config, master, settings) as spark:
            from tarn.block.opening import BlockPlace
            from tarn_spark.collection.engine import SparkEngine

            engine = SparkEngine(spark, BlockPlace.of(plan.config))
            collect(session, plan, engine, temporary)
        return
    from tarn.collection.engine import InProcess

    collect(session, plan, InProcess(), temporary)


@gc.command()
@click.argument("repository")
@pass_session
def status(session: Session, repository: str) -> None:
    """Show the present and the last run of a collection, and when the next sweep may begin."""
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


@gc.command()
@pass_session
def doomed(session: Session) -> None:
    """List the deleted repositories whose data are to be deleted or were deleted: `tarn repo delete --with-data`."""

    async def work(tarn: Connection) -> list[DoomedNamespace]:
        return [each async for each in tarn.erasures.doomed_namespaces(tarn.call)]

    rows = [_doomed(each) for each in session.run(work)]
    session.output.many(rows, tuple(_DOOMED), empty="no data are to be deleted")


@gc.command()
@click.argument("namespace")
@pass_session
def spare(session: Session, namespace: str) -> None:
    """Keep the data of a deleted repository after all, as long as their deletion has not begun.

    NAMESPACE is the storage namespace, as `tarn gc doomed` shows it. `tarn repo restore` and `tarn repo recover` keep
    the data, too.

    \b
    Example:
      tarn gc spare s3://acme-lake/tarn/lake-1f2e3d4c
    """
    session.run(lambda tarn: tarn.erasures.spare_namespace(tarn.call(), namespace))
    session.output.remark(f"the data of {namespace} stay")


@gc.command()
@click.argument("repository")
@click.option("--run", "run_id", default="", metavar="MARK", help="The mark.  [default: the last]")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write a page with plots to this file. It loads nothing from anywhere.",
)
@click.option(
    "--price",
    type=click.FloatRange(0, 1_000_000),
    default=0.023,
    show_default=True,
    help="Price of a GiB for a month, in any currency.",
)
@config_option
@data_dir_option
@pass_session
def report(
    session: Session,
    repository: str,
    run_id: str,
    page: Path | None,
    price: float,
    config_file: Path | None,
    data_dir: Path | None,
) -> None:
    """Show what a mark found and what was deleted: bytes by age, day and size, and what they cost for a month.

    It reads the files that runs leave in the bucket, those of `tarn gc run` and of Spark alike.

    \b
    Example:
      tarn gc report lake --html gc.html
    """
    from tarn.collection.report_page import render

    config = read_config(config_file, session.environment, data_dir)
    name = parse_repository(repository)
    summary = session.run(lambda tarn: _summary(tarn, config, name, run_id))
    if page is not None:
        page.write_text(render(summary, price), encoding="utf-8")
        session.output.remark(f"wrote {page}")
    session.output.one(_reported(summary, price))


async def _summary(tarn: Connection, config: Config, name: str, run_id: str) -> RunSummary:
    from tarn.block.opening import open_blocks_to_read
    from tarn.collection.run_summary import summarize
    from tarn.rpc.process.system import SystemClock

    record = await tarn.collections.get(tarn.call(), name)
    blocks = await open_blocks_to_read(config, SystemClock())
    try:
        return await summarize(blocks, record.storage_namespace, name, run_id)
    finally:
        await blocks.close()


def _reported(summary: RunSummary, price: float) -> dict[str, object]:
    from tarn.collection.outcomes import Outcome
    from tarn.collection.report_page import cost_of

    def shown(tally: Tally) -> str:
        return f"{tally.count} ({shown_size(tally.size_bytes)})"

    cost = cost_of(summary, price)
    found: dict[str, object] = {
        "repository": summary.manifest.repository,
        "mark": summary.manifest.run_id,
        "blocks": shown(summary.listed()),
        "unreferenced": shown(summary.candidates()),
    }
    if summary.report is not None:
        for outcome in Outcome:
            found[outcome.value] = shown(summary.report.total(outcome))
    found["costs_a_month"] = round(cost.all, 2)
    found["unreferenced_a_month"] = round(cost.candidates, 2)
    found["saved_a_month"] = round(cost.deleted, 2)
    found["ages"] = {band.name: shown(band.tally) for band in summary.ages if band.tally.count}
    return found


_DOOMED: Final = ("repository", "namespace", "state", "deleted", "purge_from", "purged")


def _doomed(found: DoomedNamespace) -> dict[str, object]:
    ended, begun = found.HasField("purge_end_time"), found.HasField("purge_begin_time")
    return {
        "repository": found.repository_id,
        "namespace": found.storage_namespace,
        "state": "purged" if ended else "purging" if begun else "doomed",
        "deleted": shown_time(found.doom_time),
        "purge_from": shown_time(found.purge_not_before_time),
        "purged": shown_time(found.purge_end_time) if ended else "",
    }


def _status(record: pb.Collection) -> dict[str, object]:
    from tarn_proto.graveler.v1 import collection_service_pb2 as pb

    phase = pb.CollectionPhase.Name(record.phase).removeprefix("COLLECTION_PHASE_").lower()
    if record.is_erasure:
        phase = "erase"
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
    note = {"note": totals.note} if totals.note else {}
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
        **note,
    }
