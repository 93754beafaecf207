"""`tarn diff`: shows the uncommitted changes of a branch, or the differences between two refs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tarn.core.byte_sizes import shown_size
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.ref_range import RefRange, parse_range
from tarn_cli.objects.uri import RefUri, parse_ref
from tarn_cli.output import Record
from tarn_cli.session import Command, Session, pass_session
from tarn_cli.terminal import write_line

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn.client.commits import ChangesPage
    from tarn.client.diffs import DiffSummary, SummaryPage
    from tarn_cli.connection import Connection
    from tarn_proto.graveler.v1.merge_service_pb2 import MergeCounts

__all__ = ["diff"]

_KINDS = {1: ("added", "+", "green"), 2: ("changed", "~", "yellow"), 3: ("removed", "-", "red")}
"""By `DiffKind`: a word, a sign and a colour."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One path that differs. Sizes in bytes; None for a side without the path, and for names only."""

    path: str
    kind: int
    left_size: int | None = None
    right_size: int | None = None


@dataclass(frozen=True, slots=True)
class _Wish:
    """The comparison that the arguments describe; without `after`, of uncommitted changes."""

    before: RefUri
    after: RefUri | None
    from_merge_base: bool
    prefix: str
    delimiter: str


@click.command(cls=Command)
@click.argument("left", metavar="REPOSITORY/REF")
@click.argument("right", metavar="[REPOSITORY/REF]", default="")
@click.option("--prefix", default="", help="Only paths with this prefix.")
@click.option(
    "--merge-base",
    is_flag=True,
    help="Start from the merge base of both refs instead of the first one; `A...B` is the same.",
)
@click.option("--name-only", is_flag=True, help="Show the paths only.")
@click.option("--stat", is_flag=True, help="Count the changes and their bytes.")
@click.option(
    "--delimiter",
    default="",
    metavar="TEXT",
    help="Show one line for each folder: paths are rolled up at the first TEXT after the prefix, such as `/`.",
)
@click.option(
    "-n", "--limit", type=click.IntRange(0), default=1000, show_default=True, help="0 for all."
)
@pass_session
def diff(
    session: Session,
    left: str,
    right: str,
    prefix: str,
    merge_base: bool,
    name_only: bool,
    stat: bool,
    delimiter: str,
    limit: int,
) -> None:
    """Show the uncommitted changes of a branch, or the changes from one ref to another.

    \b
    Examples:
      tarn diff lake/main                     uncommitted changes
      tarn diff lake/main lake/fix            from main to fix; also lake/main..fix
      tarn diff lake/main...fix               what fix changed since it left main
      tarn diff lake/main~1 lake/main --stat  counts and bytes of the last commit
      tarn diff lake/v1..main --delimiter /   one line for each top-level folder
      tarn diff lake/v1..main --prefix raw/ --delimiter /
    """
    wish = _wish(left, right, merge_base=merge_base, prefix=prefix, delimiter=delimiter)
    if name_only and (stat or delimiter):
        raise CliError(Exit.USAGE, "--name-only lists paths, so it excludes --stat and --delimiter")
    if stat or delimiter:
        _show_summary(session, wish, limit, with_total=stat)
        return
    found = session.run(
        # Reads one more than it shows, to learn whether there are more.
        lambda tarn: _changes(tarn, wish, limit + 1 if limit else 0, names_only=name_only)
    )
    _show(session, found, limit, names_only=name_only)


def _wish(left: str, right: str, *, merge_base: bool, prefix: str, delimiter: str) -> _Wish:
    if right:  # two names: dots are part of them
        sides: RefRange | None = RefRange(parse_ref(left), parse_ref(right), from_merge_base=False)
    else:
        sides = parse_range(left)
    if sides is None:
        if merge_base:
            raise CliError(Exit.USAGE, "--merge-base needs two refs")
        return _Wish(parse_ref(left), None, False, prefix, delimiter)
    if sides.left.repository != sides.right.repository:
        text = f"{sides.left} and {sides.right} are refs of different repositories"
        raise CliError(Exit.USAGE, text)
    from_base = merge_base or sides.from_merge_base
    return _Wish(sides.left, sides.right, from_base, prefix, delimiter)


async def _changes(
    tarn: Connection, wish: _Wish, wanted: int, *, names_only: bool
) -> list[_Change]:
    from tarn_cli.connection import collect

    async def fetch(size: int, token: str) -> ChangesPage:
        before, after = wish.before, wish.after
        if after is None:
            return await tarn.graveler.diff_uncommitted(
                tarn.call(),
                before.repository,
                before.ref,
                prefix=wish.prefix,
                page_size=size,
                page_token=token,
                names_only=names_only,
            )
        return await tarn.graveler.diff_refs(
            tarn.call(),
            before.repository,
            before.ref,
            after.ref,
            prefix=wish.prefix,
            page_size=size,
            page_token=token,
            from_merge_base=wish.from_merge_base,
            names_only=names_only,
        )

    return await collect(fetch, _of_page, wanted)


def _of_page(page: ChangesPage) -> list[_Change]:
    if page.kinds:
        return [_Change(path, kind) for path, kind in zip(page.paths, page.kinds, strict=True)]
    rows = zip(page.paths, page.left_entries, page.right_entries, strict=True)
    return [
        _Change(path, 1 if not left else 2 if right else 3, _size(left), _size(right))
        for path, left, right in rows
    ]


def _size(packed: bytes) -> int | None:
    from tarn.core.entry import unpack

    return unpack(packed).size if packed else None


def _show(session: Session, found: list[_Change], limit: int, *, names_only: bool) -> None:
    shown = found[:limit] if limit else found
    if session.as_json:
        session.output.many([_record(each, names_only=names_only) for each in shown], ())
    else:
        for change in shown:
            if names_only:
                write_line(change.path)
            else:
                write_line(_line(change), fg=_KINDS[change.kind][2])
    if len(found) > len(shown):
        write_line(f"more than {limit} differences: --limit 0 shows all", err=True)
    elif not found:
        session.output.remark("no differences")


def _record(change: _Change, *, names_only: bool) -> Record:
    record: Record = {"path": change.path, "change": _KINDS[change.kind][0]}
    if names_only:
        return record
    sizes = {"left_size_bytes": change.left_size, "right_size_bytes": change.right_size}
    return {**record, **sizes}


def _line(change: _Change) -> str:
    sign = _KINDS[change.kind][1]
    sizes = [size for size in (change.left_size, change.right_size) if size is not None]
    shown = " -> ".join(shown_size(size) for size in sizes)
    return f"{sign} {change.path}  ({shown})"


# ---- counts


def _show_summary(session: Session, wish: _Wish, limit: int, *, with_total: bool) -> None:
    from tarn.client.diffs import summary_of

    async def work(tarn: Connection) -> DiffSummary:
        async def fetch(token: str) -> SummaryPage:
            before, after = wish.before, wish.after
            if after is None:
                return await tarn.graveler.summarize_uncommitted(
                    tarn.call(),
                    before.repository,
                    before.ref,
                    prefix=wish.prefix,
                    delimiter=wish.delimiter,
                    page_size=1000,
                    page_token=token,
                )
            return await tarn.graveler.summarize_diff(
                tarn.call(),
                before.repository,
                before.ref,
                after.ref,
                from_merge_base=wish.from_merge_base,
                prefix=wish.prefix,
                delimiter=wish.delimiter,
                page_size=1000,
                page_token=token,
            )

        # One line more than it shows: the last line is complete then, and it learns whether there are more.
        return await summary_of(fetch, folders_max=0 if with_total or not limit else limit + 1)

    found = session.run(work)
    folders = found.folders[:limit] if limit else found.folders
    if session.as_json:
        lines = [
            {"path": each.path, "is_prefix": each.is_prefix, **_counts(each.counts)}
            for each in folders
        ]
        total: Record = _counts(found.counts) if with_total else {}
        if wish.delimiter and with_total:
            session.output.one({**total, "folders": lines})
        elif wish.delimiter:
            session.output.many(lines, ())
        else:
            session.output.one(total)
    else:
        for each in folders:
            write_line(f"{each.path}  {_counted(each.counts)}")
        if with_total:
            write_line(f"{'total' if wish.delimiter else 'all changes'}  {_counted(found.counts)}")
    if len(found.folders) > len(folders):
        write_line(f"more than {limit} folders: --limit 0 shows all", err=True)
    elif not found.folders and not with_total:
        session.output.remark("no differences")


def _counts(counts: MergeCounts) -> dict[str, int]:
    return {
        "added": counts.added_count,
        "changed": counts.changed_count,
        "removed": counts.removed_count,
        "added_bytes": counts.added_bytes,
        "removed_bytes": counts.removed_bytes,
    }


def _counted(counts: MergeCounts) -> str:
    signs = f"+{counts.added_count} ~{counts.changed_count} -{counts.removed_count}"
    sizes = f"{shown_size(counts.added_bytes)} added, {shown_size(counts.removed_bytes)} removed"
    return f"{signs}  ({sizes})"
