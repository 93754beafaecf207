"""`tarn erase`: deletes objects out of all history, by their paths.

It opens the configured block store itself, as `tarn gc` does, and asks graveler for the lease of a collection.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from tarn.core.byte_sizes import shown_size
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.moments import iso_time
from tarn_cli.collecting import interruptible, opened_collector
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.objects.uri import parse_repository
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.terminal import prompt

if TYPE_CHECKING:  # imported when a command runs
    from tarn.collection.erasing import Eraser, Erasure
    from tarn.collection.erasure_files import ErasurePlan
    from tarn.collection.quarantine import Tally
    from tarn.config import Config
    from tarn_cli.connection import Connection

__all__ = ["erase"]

T = TypeVar("T")


@click.group(cls=Group)
def erase() -> None:
    """Erase objects out of all history, by their paths: docs/operate/erase.md explains it.

    A plan finds every version of the objects in all commits, branches and tags, and deletes nothing. A run discards
    uncommitted entries of a plan, deletes its blocks, looks for each of them again, and writes a certificate. A run
    cannot be undone. Both need the permissions EraseData and ManageCollection, which only admins have.

    \b
    Examples:
      tarn erase plan lake 'users/1234/**'
      tarn erase run lake --plan 019ab3c0e7f07b3c8d5e6f7a8b9c0d1e -o certificate.json
    """


@erase.command()
@click.argument("repository")
@click.argument("pattern")
@click.option(
    "--everything",
    is_flag=True,
    help="Allow a pattern that does not begin with a whole literal segment.",
)
@config_option
@data_dir_option
@pass_session
def plan(
    session: Session,
    repository: str,
    pattern: str,
    everything: bool,
    config_file: Path | None,
    data_dir: Path | None,
) -> None:
    """Find the objects whose paths match PATTERN, in all history; deletes nothing.

    In a pattern, `*` is any text without a slash, `?` one character, `**` any text, and a backslash makes the next
    character literal. Quote it.

    \b
    Example:
      tarn erase plan lake 'users/1234/**'
    """
    name = parse_repository(repository)
    config = store_config(session, config_file, data_dir, beside_server=True)
    made = _done(session, config, lambda each: each.plan(name, pattern, everything=everything))
    session.output.one(_shown_plan(made))
    if made.erasable.count:
        session.output.remark(
            f"nothing is deleted yet; look at _tarn/erased/{made.plan_id}/list.parquet, "
            f"then: tarn erase run {name} --plan {made.plan_id}"
        )
    if made.others:
        session.output.remark(
            f"{made.others} other paths, which do not match, refer to the same data and lose it, too"
        )
    if made.uncommitted:
        session.output.remark(
            f"a run discards {sum(made.uncommitted.values())} uncommitted entries on the branches of uncommitted_in"
        )
    if made.too_young.count:
        session.output.remark(
            f"{made.too_young.count} blocks are younger than a day and are left out: plan again tomorrow"
        )


@erase.command()
@click.argument("repository")
@click.option("--plan", "plan_id", required=True, metavar="PLAN", help="The plan, by its id.")
@click.option("--yes", is_flag=True, help="Do not ask for the id of the plan again.")
@click.option(
    "-o",
    "output_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Write the certificate to this file, too.",
)
@config_option
@data_dir_option
@pass_session
def run(
    session: Session,
    repository: str,
    plan_id: str,
    yes: bool,
    output_file: Path | None,
    config_file: Path | None,
    data_dir: Path | None,
) -> None:
    """Delete the blocks of a plan, for ever, and write a certificate.

    Uncommitted entries of these blocks are discarded first, also on protected branches. You are asked to
    repeat the id of the plan. A run that was interrupted is begun again by the same command.
    """
    name = parse_repository(repository)
    config = store_config(session, config_file, data_dir, beside_server=True)
    if not yes:
        _ask(name, plan_id)
    found = _done(session, config, lambda each: each.run(name, plan_id))
    session.output.one(_shown_erasure(found))
    if found.certificate is not None and output_file is not None:
        from tarn.collection.erasure_files import certificate_json

        output_file.write_text(certificate_json(found.certificate), encoding="utf-8")
        session.output.remark(f"wrote {output_file}")
    if found.came_since:
        session.output.remark(
            f"{found.came_since} more blocks match that this plan does not have: make another plan"
        )
    if found.certificate is None:
        why = found.error or found.versions or f"{found.failed.count} blocks are still there"
        text = f"there is no certificate for plan {plan_id} of {name}: {why}"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)


@erase.command()
@click.argument("repository")
@config_option
@data_dir_option
@pass_session
def repair(
    session: Session, repository: str, config_file: Path | None, data_dir: Path | None
) -> None:
    """Write the notes of all erasures again, after a restore of metadata from before them.

    Without these notes, a read of an erased object is an internal error, and `tarn fsck` tells missing blocks. The
    plans that began are in the bucket. It deletes nothing: run a plan again if the restore brought blocks back.
    """
    name = parse_repository(repository)
    config = store_config(session, config_file, data_dir, beside_server=True)
    count = _done(session, config, lambda each: each.repair(name))
    session.output.one({"repository": name, "erased_blocks": count})


def _ask(name: str, plan_id: str) -> None:
    """Lets a person repeat the id of the plan.

    Raises:
        UsageError: there is no terminal, or the answer is another id.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to ask on; --yes runs the plan without a question"
        )
    what = f"objects of {name} out of all history, and uncommitted ones"
    text = f"This deletes {what}, for ever. Repeat the id of the plan"
    if prompt(text).strip() != plan_id:
        raise click.UsageError("that is another id; nothing was deleted")


def _done(session: Session, config: Config, work: Callable[[Eraser], Awaitable[T]]) -> T:
    """Does something with an eraser, shows the progress, and lets a signal end it."""

    async def connected(tarn: Connection) -> T:
        from tarn.collection.engine import InProcess
        from tarn.collection.erasing import Eraser

        user = (await tarn.auth.get_caller(tarn.call())).user.user_id
        with tempfile.TemporaryDirectory(prefix="tarn-erase-") as folder:
            opened = opened_collector(session.output, tarn, config, InProcess(), Path(folder))
            async with opened as collector:
                return await work(Eraser(collector, tarn.erasures, user))

    return interruptible(session, connected, "interrupted; the same command goes on")


def _tally(tally: Tally) -> str:
    return f"{tally.count} ({shown_size(tally.size_bytes)})"


def _shown_plan(made: ErasurePlan) -> dict[str, object]:
    shown: dict[str, object] = {
        "repository": made.repository,
        "plan": made.plan_id,
        "pattern": made.pattern,
        "blocks": _tally(made.erasable),
        "too_young": _tally(made.too_young),
        "paths": made.paths,
        "other_paths": made.others,
        "in_heads_of": dict(sorted(made.heads.items())),
        "uncommitted_in": dict(sorted(made.uncommitted.items())),
        "list_sha256": made.list_sha256,
    }
    if made.outside:
        shown["outside_the_namespace"] = made.outside
    if made.incomplete:
        shown["incomplete_listings"] = len(made.incomplete)
    return shown


def _shown_erasure(found: Erasure) -> dict[str, object]:
    shown: dict[str, object] = {
        "repository": found.plan.repository,
        "plan": found.plan.plan_id,
        "discarded_in": dict(sorted(found.discarded.items())),
        "deleted": _tally(found.deleted),
        "failed": _tally(found.failed),
        "came_since": found.came_since,
    }
    if found.certificate is not None:
        shown["certificate"] = (
            f"_tarn/erased/{found.plan.plan_id}/certificate-{found.certificate.run_id}.json"
        )
        shown["last_look"] = iso_time(found.certificate.look_us)
    return shown
