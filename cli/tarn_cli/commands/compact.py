"""`tarn compact`: folds the uncommitted changes of a branch; `tarn branch show --staging` counts them."""

from __future__ import annotations

import click

from tarn.core.byte_sizes import shown_size
from tarn_cli.objects.uri import parse_ref
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Command, Session, pass_session
from tarn_proto.graveler.v1 import compaction_service_pb2 as pb

__all__ = ["compact", "staging_record"]

_OUTCOMES = {
    pb.COMPACTION_OUTCOME_COMPACTED: "compacted",
    pb.COMPACTION_OUTCOME_NOTHING_TO_DO: "nothing to do",
    pb.COMPACTION_OUTCOME_SUPERSEDED: "superseded",
    pb.COMPACTION_OUTCOME_RUNNING: "running",
}


@click.command(cls=Command)
@click.argument("branch_uri", metavar="REPOSITORY/BRANCH")
@click.option(
    "--force", is_flag=True, help="Also if another compaction of the branch seems to run."
)
@pass_session
def compact(session: Session, branch_uri: str, force: bool) -> None:
    """Fold the uncommitted changes of a branch, so that listings no longer pass deleted objects.

    No object, listing or commit changes. `superseded` means that a commit, a merge, a reset or another compaction
    changed the branch meanwhile, and that nothing was folded.

    \b
    Example:
      tarn branch show lake/main --staging     what is uncommitted, and how many deletes
      tarn compact lake/main
    """
    uri = parse_ref(branch_uri)
    done = session.run(
        lambda tarn: tarn.graveler.compact_branch(tarn.call(), uri.repository, uri.ref, force=force)
    )
    shown: dict[str, object] = {
        "branch": uri.ref,
        "outcome": _OUTCOMES.get(done.outcome, "unknown"),
        "rows_read": done.rows_read,
        "rows_written": done.rows_written,
        "tombstones_removed": done.tombstones_removed,
        "tokens_taken": done.tokens_taken,
        "seconds": round(done.duration.ToTimedelta().total_seconds(), 3),
    }
    if done.HasField("running_since"):
        shown["running_since"] = shown_time(done.running_since)
    session.output.one(shown)


def staging_record(found: pb.GetStagingStatisticsResponse, *, as_json: bool) -> Record:
    """Returns the fields that `tarn branch show --staging` adds to those of the branch."""
    shown: dict[str, object] = {
        "sealed_tokens": found.sealed_token_count,
        "staged_rows": found.row_count,
        "tombstones": found.tombstone_count,
        "staged_bytes": found.size_bytes if as_json else shown_size(found.size_bytes),
        "complete": not found.is_truncated,
        "compacted_rows": found.compacted_row_count,
    }
    if found.listed_rows_returned:
        shown["rows_listed"] = round(found.listed_rows_read / found.listed_rows_returned, 1)
    for name in ("oldest_write_time", "compaction_start_time", "last_compaction_time"):
        if found.HasField(name):
            shown[name.removesuffix("_time")] = shown_time(getattr(found, name))
    return shown
