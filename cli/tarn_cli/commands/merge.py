"""`tarn merge`: merges a ref into a branch, or previews the merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from tarn.core.byte_sizes import shown_size
from tarn_cli.background import start_merge, start_preview
from tarn_cli.commands.commit import commit_record, commit_text, metadata_pairs
from tarn_cli.conflicts import (
    Decisions,
    conflict_lines,
    conflict_options,
    conflict_record,
    decisions,
)
from tarn_cli.exits import CliError, Exit
from tarn_cli.foreground import merged, previewed
from tarn_cli.objects.uri import RefUri, parse_ref, parse_ref_of
from tarn_cli.options import not_empty
from tarn_cli.output import Record
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.terminal import write_lines
from tarn_proto.graveler.v1.merge_service_pb2 import (
    MergeConflict,
    MergeCounts,
    MergeRequest,
    PreviewMergeRequest,
    PreviewMergeResponse,
)

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["merge"]

_PAGE_SIZE = 1000
"""The greatest page of conflicts."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """The merge that the arguments describe."""

    source: RefUri
    dest: RefUri
    decided: Decisions


@click.command(cls=Command)
@click.argument("source_uri", metavar="REPOSITORY/SOURCE")
@click.argument("dest_uri", metavar="REPOSITORY/BRANCH")
@click.option("-m", "--message", default="", help="Message of the merge commit.")
@click.option("--meta", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@conflict_options
@click.option(
    "--squash",
    is_flag=True,
    help="Make a commit with one parent: the history of the source stays out.",
)
@click.option(
    "--allow-empty",
    is_flag=True,
    help="Make a merge commit even if there is nothing to merge.",
)
@click.option(
    "--ff-only",
    is_flag=True,
    help="Move the branch to the source's commit without a merge commit; fail if it has commits of its own.",
)
@click.option(
    "--as",
    "as_uri",
    default="",
    callback=not_empty,
    metavar="BRANCH",
    help="Create a branch with the result of the merge instead; the destination may be any ref and stays as it is.",
)
@click.option("--preview", is_flag=True, help="Show the changes and all conflicts; change nothing.")
@click.option(
    "--background",
    is_flag=True,
    help="Start the merge as a task, print its id and return; `tarn task wait` waits for it.",
)
@pass_session
def merge(
    session: Session,
    source_uri: str,
    dest_uri: str,
    message: str,
    meta: tuple[str, ...],
    take: tuple[str, ...],
    strategy: str | None,
    squash: bool,
    allow_empty: bool,
    ff_only: bool,
    as_uri: str,
    preview: bool,
    background: bool,
) -> None:
    """Merge the commit of any ref into a branch.

    The branch must have no uncommitted changes. Uncommitted changes of the source are not merged. A path is in
    conflict if both sides changed it differently since their merge base; --take and --strategy say which side
    wins, and without them a conflict fails the command and changes nothing. The merge is a task of the servers: it
    goes on after Ctrl-C, and `tarn task` follows or cancels it.

    \b
    Examples:
      tarn merge lake/feature lake/main --preview     changes and conflicts, nothing is merged
      tarn merge lake/feature lake/main -m "Load May"
      tarn merge lake/feature lake/main --take 'source:raw/**' --take 'dest:reports/*.csv'
      tarn merge lake/feature lake/main --strategy dest-wins
      tarn merge lake/feature lake/main --squash      one commit, without the feature's history
      tarn merge lake/main lake/replica --ff-only     no commit: the branch moves forward
      tarn merge lake/feature lake/main --as try      a new branch with the result; main stays as it is
      tarn merge lake/feature lake/main --background  a task that goes on when this machine is switched off
    """
    source, dest = parse_ref(source_uri), parse_ref(dest_uri)
    if source.repository != dest.repository:
        raise CliError(Exit.USAGE, f"{source} and {dest} are refs of different repositories")
    metadata = metadata_pairs(meta)
    wish = _Wish(source, dest, decisions(take, strategy))
    if ff_only and (squash or allow_empty or message or meta):
        text = "--ff-only makes no commit, so it excludes --squash, --allow-empty, -m and --meta"
        raise CliError(Exit.USAGE, text)
    if background and as_uri:
        raise CliError(Exit.USAGE, "--background starts a merge or a preview, so it excludes --as")
    if as_uri and (squash or ff_only or preview):
        text = "--as makes a merge commit on a new branch, so it excludes --squash, --ff-only and --preview"
        raise CliError(Exit.USAGE, text)
    if preview:
        _preview(session, wish, background=background)
        return
    if as_uri:
        commit = {"message": message, "metadata": metadata, "allow_empty": allow_empty}
        _merge_as(session, wish, parse_ref_of(as_uri, dest.repository), commit)
        return
    request = MergeRequest(
        repository_id=dest.repository,
        branch_id=dest.ref,
        source_ref=source.ref,
        message=message,
        metadata=metadata,
        choices=wish.decided.choices,
        default_side=wish.decided.default_side,
        squash=squash,
        allow_empty=allow_empty,
        fast_forward_only=ff_only,
    )
    if background:
        start_merge(session, request)
    else:
        made = merged(session, request)
        session.output.one(commit_record(made), commit_text(made))


def _preview_request(wish: _Wish) -> PreviewMergeRequest:
    return PreviewMergeRequest(
        repository_id=wish.dest.repository,
        destination_ref=wish.dest.ref,
        source_ref=wish.source.ref,
        choices=wish.decided.choices,
        default_side=wish.decided.default_side,
        page_size=_PAGE_SIZE,
    )


def _merge_as(session: Session, wish: _Wish, branch: str, commit: dict[str, Any]) -> None:
    """Creates a branch at the merge; `commit` holds further arguments of the client's method."""
    made = session.run(
        lambda tarn: tarn.graveler.create_merge_branch(
            tarn.call(),
            wish.dest.repository,
            branch,
            wish.dest.ref,
            wish.source.ref,
            choices=wish.decided.choices,
            default_side=wish.decided.default_side,
            **commit,
        )
    )
    session.output.one({"branch": branch, **commit_record(made)}, commit_text(made))


def _preview(session: Session, wish: _Wish, *, background: bool) -> None:
    if background:
        start_preview(session, _preview_request(wish))
        return
    decided, repository = wish.decided, wish.dest.repository

    preview = previewed(session, _preview_request(wish))

    async def work(tarn: Connection) -> list[MergeConflict]:
        conflicts = tarn.graveler.all_conflicts(
            tarn.call,
            repository,
            preview,
            choices=decided.choices,
            default_side=decided.default_side,
            page_size=_PAGE_SIZE,
        )
        return [each async for each in conflicts]

    conflicts = session.run(work) if preview.next_after else list(preview.conflicts)
    if session.as_json:
        session.output.one(_record(preview, conflicts))
        return
    write_lines(_lines(wish, preview))
    for each in conflicts:
        write_lines(conflict_lines(each), first_fg="red")
    if conflicts:
        session.output.remark("--take SIDE:PATTERN or --strategy decides these conflicts")


def _record(preview: PreviewMergeResponse, conflicts: list[MergeConflict]) -> Record:
    return {
        "source_commit": preview.source_commit_id,
        "destination_commit": preview.destination_commit_id,
        "base_commit": preview.base_commit_id or None,
        "base_commits": list(preview.base_commit_ids),
        **_counts(preview.counts),
        "prefixes": [{"prefix": each.prefix, **_counts(each.counts)} for each in preview.prefixes],
        "conflict_count": preview.conflict_count,
        "conflicts": [conflict_record(each) for each in conflicts],
    }


def _counts(counts: MergeCounts) -> dict[str, int]:
    return {
        "added": counts.added_count,
        "changed": counts.changed_count,
        "removed": counts.removed_count,
        "added_bytes": counts.added_bytes,
        "removed_bytes": counts.removed_bytes,
    }


def _lines(wish: _Wish, preview: PreviewMergeResponse) -> list[str]:
    base = preview.base_commit_id
    if base == preview.source_commit_id:
        return [f"nothing to merge: {wish.dest} already contains {wish.source}"]
    lines = [
        f"{wish.source} at {preview.source_commit_id[:12]} into {wish.dest} at "
        f"{preview.destination_commit_id[:12]}, {_bases(preview)}",
        _changes("all changes", preview.counts),
    ]
    lines += [_changes(each.prefix or "(top level)", each.counts) for each in preview.prefixes]
    count = preview.conflict_count
    lines.append("no conflicts" if not count else f"{count} conflict{'s' if count > 1 else ''}")
    return lines


def _bases(preview: PreviewMergeResponse) -> str:
    if len(preview.base_commit_ids) > 1:
        return "merge bases " + " ".join(each[:12] for each in preview.base_commit_ids)
    return f"merge base {preview.base_commit_id[:12] or 'none'}"


def _changes(name: str, counts: MergeCounts) -> str:
    signs = f"+{counts.added_count} ~{counts.changed_count} -{counts.removed_count}"
    sizes = f"{shown_size(counts.added_bytes)} added, {shown_size(counts.removed_bytes)} removed"
    return f"  {name:<20}  {signs}  ({sizes})"
