"""The root of the command line: global options and the list of commands.

Each command group is a module that is imported when it is used, because users notice start-up time.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tarn_cli.session import Group, Session
from tarn_cli.settings import Settings

__all__ = ["cli", "open_session", "session_options"]

_COMMANDS = {
    # Running Tarn on this machine.
    "up": ("tarn_cli.commands.up:up", "Start Tarn on this machine."),
    "down": ("tarn_cli.commands.up:down", "Stop Tarn on this machine."),
    "status": ("tarn_cli.commands.up:status", "Show whether Tarn runs, and its addresses."),
    "doctor": (
        "tarn_cli.commands.doctor:doctor",
        "Check configuration, stores, clocks and versions.",
    ),
    "debug": ("tarn_cli.commands.debug:debug", "Support bundles, stacks, profiles."),
    "fsck": ("tarn_cli.commands.fsck:fsck", "Check all stored data."),
    "retention": (
        "tarn_cli.commands.retention:retention",
        "Say which commits keep their objects.",
    ),
    "gc": ("tarn_cli.commands.gc:gc", "Delete blocks to which nothing refers."),
    "journal": ("tarn_cli.commands.journal:journal", "Compact the journal in the bucket."),
    "erase": ("tarn_cli.commands.erase:erase", "Erase objects out of all history, by paths."),
    # Versions.
    "repo": ("tarn_cli.commands.repo:repo", "Repositories."),
    "bucket": (
        "tarn_cli.commands.bucket:bucket",
        "Bucket names that show a branch, tag or commit.",
    ),
    "branch": ("tarn_cli.commands.branch:branch", "Branches."),
    "tag": ("tarn_cli.commands.tag:tag", "Tags."),
    "refs": ("tarn_cli.commands.refs:refs", "List refs, and show the commit that a ref names."),
    "commit": ("tarn_cli.commands.commit:commit", "Commit the uncommitted changes of a branch."),
    "compact": (
        "tarn_cli.commands.compactor:compact",
        "Fold the uncommitted changes of a branch, so that listings stay fast; the compactors.",
    ),
    "log": ("tarn_cli.commands.log:log", "Show the history of a ref, or of a range A..B."),
    "annotate": (
        "tarn_cli.commands.annotate:annotate",
        "Show which commit gave each path its content.",
    ),
    "reflog": ("tarn_cli.commands.reflog:reflog", "Show how the head of a branch changed."),
    "diff": (
        "tarn_cli.commands.diff:diff",
        "Show uncommitted changes, or the differences of two refs.",
    ),
    "merge": ("tarn_cli.commands.merge:merge", "Merge a ref into a branch, or preview the merge."),
    "pr": (
        "tarn_cli.commands.pr:pr",
        "Pull requests: ask for a merge, review, merge what was reviewed.",
    ),
    "tx": (
        "tarn_cli.commands.tx:tx",
        "Run a command whose writes appear together, or not at all.",
    ),
    "task": ("tarn_cli.commands.task:task", "Long work that goes on in the background."),
    "revert": ("tarn_cli.commands.pick:revert", "Undo the changes of a commit, by a new commit."),
    "cherry-pick": (
        "tarn_cli.commands.pick:cherry_pick",
        "Apply the changes of a commit to a branch.",
    ),
    # Objects.
    "fs": ("tarn_cli.commands.fs:fs", "Objects: list, read, upload, download, remove."),
    # Permissions.
    "auth": ("tarn_cli.commands.auth:auth", "Users, keys and logging in."),
    "audit": ("tarn_cli.commands.audit:audit", "Search the audit log."),
    "quota": ("tarn_cli.commands.quota:quota", "Limits of repositories and users."),
    # The metadata store.
    "kv": ("tarn_cli.commands.kv:kv", "The metadata store: move a whole installation."),
    "backup": ("tarn_cli.commands.backup:backup", "Back up all metadata, and restore it."),
    "rebuild": (
        "tarn_cli.commands.rebuild:rebuild",
        "Make a lost metadata store anew from the bucket.",
    ),
    "upgrade": (
        "tarn_cli.commands.upgrade:upgrade",
        "The feature level, and the releases that use an installation.",
    ),
    # The command line itself.
    "context": (
        "tarn_cli.commands.context:context",
        "Show which installation commands use, and what names it.",
    ),
    "config": (
        "tarn_cli.commands.config:config",
        "Settings of the command line and of the services.",
    ),
    "completion": ("tarn_cli.commands.completion:completion", "Shell completion."),
}


class _Root(Group):
    """Imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in _COMMANDS.items()])


_SESSION_OPTIONS = (
    click.option("--server", default="", help="Address of graveler's rpc port, host:port."),
    click.option("--auth-server", default="", help="Address of auth, if it is a separate process."),
    click.option("--compactor-server", default="", help="Address of the compactors, host:port."),
    click.option("--endpoint", default="", help="URL of the S3 endpoint."),
    click.option("--access-key-id", default="", help="Access key id of your key pair."),
    click.option(
        "--secret-access-key",
        default="",
        help="Secret of your key pair. Other users of this machine can see it in the process list; "
        "prefer TARN_SECRET_ACCESS_KEY or `tarn auth login`.",
    ),
    click.option(
        "--settings",
        "settings_file",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="TARN_SETTINGS",
        help="Read server and key from this file.",
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=click.FloatRange(0.1, 86_400),
        default=60.0,
        show_default=True,
        help="Seconds that one call may take.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON for programs."),
    click.option("--quiet", is_flag=True, help="Print no remarks and no progress bars."),
    click.option("--debug", is_flag=True, help="Show tracebacks."),
)


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that every command line has; `open_session` reads them."""
    for option in reversed(_SESSION_OPTIONS):
        command = option(command)
    return command


def open_session(
    context: click.Context,
    /,
    settings_file: Path | None,
    timeout_s: float,
    as_json: bool,
    quiet: bool,
    debug: bool,
    **flags: str,
) -> Session:
    """Returns the session of the options of `session_options`, and makes it that of the context."""
    context.obj = Session(
        flags=Settings(**flags),
        environment=os.environ,
        settings_file=settings_file,
        timeout_s=timeout_s,
        as_json=as_json,
        quiet=quiet,
        debug=debug,
    )
    assert isinstance(context.obj, Session)
    return context.obj


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@session_options
@click.version_option(package_name="tarn", prog_name="tarn")
@click.pass_context
def cli(context: click.Context, /, **values: Any) -> None:  # noqa: ANN401 - click's values
    """Git for data lakes: branches, commits and tags over an object store.

    Name a repository as `lake`, a ref as `lake/main` and an object as `lake/main/raw/a.csv`. The prefix
    `tarn://` is optional.

    \b
    Examples:
      tarn up --detach                        start Tarn on this machine
      tarn auth setup                         create the first admin and its key
      tarn repo create lake
      tarn fs upload -r ./raw lake/main/raw/
      tarn commit lake/main -m "Load raw data"
      tarn branch create lake/fix --from main
      tarn diff lake/main lake/fix
      tarn merge lake/fix lake/main

    \b
    Exit codes:
      0 ok   1 failure   2 usage   3 not found   4 denied   5 conflict   6 unavailable
      7 `tarn fsck` found lost or inconsistent data
    """
    open_session(context, **values)
