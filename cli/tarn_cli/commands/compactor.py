"""`tarn compact`: a branch, or `status`, `pause` and `resume` of the compactors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from tarn.core.byte_sizes import shown_size
from tarn_cli.commands.compact import compact as compact_branch
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import write_line

if TYPE_CHECKING:
    from tarn.client.compactor import CompactorClient
    from tarn.rpc.wire.call import Call
    from tarn_cli.connection import Connection
    from tarn_proto.compactor.v1 import compactor_service_pb2 as pb

__all__ = ["compact"]

T = TypeVar("T")

_COLUMNS = (
    "branch",
    "rows",
    "tombstones",
    "staged",
    "sealed_tokens",
    "rows_listed",
    "since",
    "state",
    "reason",
)
_HELP = ("-h", "--help")


class _Compact(Group):
    """Takes a branch in the place of a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = ["branch", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Compact)
def compact() -> None:
    """Fold the uncommitted changes of a branch, and control the compactors, which do so in the background.

    \b
    Examples:
      tarn compact lake/main
      tarn compact status
      tarn compact pause --minutes 30
    """


compact.add_command(compact_branch, "branch")


@compact.command()
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Branches."
)
@pass_session
def status(session: Session, limit: int) -> None:
    """Show the state of a compactor: its work, its counts and the pause.

    The branches with the most uncommitted deletes come first. `rows listed` is the number of rows that listings of the
    branch read for each one that they returned. Of several compactors, one answers; a pause is that of all.
    """
    found = _ask(session, lambda client, call: client.status(call, page_size=limit))
    if session.output.as_json:
        session.output.one({**_totals(found), "branches": _branches(found, as_json=True)})
        return
    session.output.one(_totals(found))
    write_line()
    session.output.many(
        _branches(found, as_json=False), _COLUMNS, empty="no branch has uncommitted rows"
    )


@compact.command()
@click.option(
    "--minutes", type=click.IntRange(1, 10_080), default=60, show_default=True, help="How long."
)
@click.option("--until-resumed", is_flag=True, help="Until `tarn compact resume`.")
@pass_session
def pause(session: Session, minutes: int, until_resumed: bool) -> None:
    """Let no compactor start a compaction for a while; running ones finish.

    The pause is stored: it holds for all compactors of the installation, also after restarts. Commits and `tarn compact
    REPOSITORY/BRANCH` go on.
    """
    done = _ask(
        session,
        lambda client, call: client.pause(call, minutes * 60, until_resumed=until_resumed),
    )
    session.output.one({"paused_until": _pause_end(done)})


@compact.command()
@pass_session
def resume(session: Session) -> None:
    """End the pause of all compactors."""
    _ask(session, lambda client, call: client.resume(call))
    session.output.remark("the compactors work again")


def _pause_end(told: pb.PauseCompactorResponse | pb.GetCompactorStatusResponse) -> str:
    if told.HasField("pause_end_time"):
        return shown_time(told.pause_end_time)
    return "tarn compact resume"


def _ask(session: Session, ask: Callable[[CompactorClient, Call], Awaitable[T]]) -> T:
    """Calls the compactor as the user."""
    settings = session.settings()

    async def work(tarn: Connection) -> T:
        from dataclasses import replace

        from tarn.rpc.process.system import SystemClock
        from tarn_cli.connection import connect_to_compactor

        call = replace(tarn.call(), caller_token=await tarn.log_in())
        async with connect_to_compactor(settings, SystemClock()) as compactor:
            return await ask(compactor, call)

    return session.run(work)


def _totals(found: pb.GetCompactorStatusResponse) -> dict[str, object]:
    shown: dict[str, object] = {
        "branches_with_rows": found.branch_count,
        "waiting_to_be_measured": found.measure_queue,
        "compactions": found.compactions,
        "failures": found.failures,
        "rows_read": found.rows_read,
        "rows_written": found.rows_written,
        "sealed_tokens_removed": found.sealed_tokens_removed,
        "tombstones_removed": found.tombstones_removed,
        "seconds": found.duration_ms / 1000,
        "replicas": [
            f"{each.address} ({'connected' if each.is_connected else each.error or 'connecting'}, "
            f"{each.changes} changes, {each.gaps} gaps)"
            for each in found.replicas
        ],
    }
    if found.paused_by:
        shown["paused_by"] = found.paused_by
        shown["paused_since"] = shown_time(found.pause_start_time)
        shown["paused_until"] = _pause_end(found)
    return shown


def _branches(found: pb.GetCompactorStatusResponse, *, as_json: bool) -> list[Record]:
    from tarn_proto.compactor.v1 import compactor_service_pb2 as pb

    return [
        {
            "branch": f"{each.repository_id}/{each.branch_id}",
            "rows": each.rows,
            "tombstones": each.tombstones,
            "staged": each.size_bytes if as_json else shown_size(each.size_bytes),
            "sealed_tokens": each.sealed_tokens,
            "rows_listed": round(each.listing_amplification, 1),
            "since": shown_time(each.since_time),
            "state": pb.BranchState.Name(each.state).removeprefix("BRANCH_STATE_").lower(),
            "reason": each.reason,
        }
        for each in found.branches
    ]
