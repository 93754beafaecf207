"""The context of every command, and the command class that adds `--json` to every command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarn_cli.context import Context, resolve
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.output import Output
from tarn_cli.settings import Settings

if TYPE_CHECKING:  # grpc takes a third of a second to import; `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["Command", "Group", "Session", "pass_session"]

T = TypeVar("T")
_PATIENCE_S = 3.0
"""After this time a command says that it still waits: a server that restarts answers soon, one that is down does
not."""


@dataclass(slots=True)
class Session:
    """One run of the command line.

    Attributes:
        flags: settings given as flags.
        environment: environment of the process; read nowhere else.
        settings_file: file to read instead of the default files, or None.
        timeout_s: most seconds that one call may take.
        as_json: print JSON.
        quiet: print no remarks and no progress.
        debug: show tracebacks.
    """

    flags: Settings
    environment: Mapping[str, str]
    settings_file: Path | None
    timeout_s: float
    as_json: bool = False
    quiet: bool = False
    debug: bool = False

    @property
    def output(self) -> Output:
        """Prints the results."""
        return Output(as_json=self.as_json, quiet=self.quiet)

    def settings(self) -> Settings:
        """Addresses and key pair of the context."""
        return self.context().settings

    def context(self) -> Context:
        """The installation that the command is about; see `tarn_cli.context.resolve`."""
        return resolve(self.flags, self.environment, self.settings_file)

    def run(
        self,
        work: Callable[[Connection], Awaitable[T]],
        *,
        log_in: bool = True,
        settings: Settings | None = None,
    ) -> T:
        """Runs `work` over a connection and returns its result.

        Args:
            work: called with the connection.
            log_in: False for calls that need no user.
            settings: overrides the settings of the session.
        """
        from tarn.rpc.process.system import SystemClock, SystemIds
        from tarn_cli.connection import connect

        where = settings or self.settings()

        clock = SystemClock()

        async def connected() -> T:
            waits = f"no answer from {where.auth_server or where.server} yet; trying on"
            remark = asyncio.get_running_loop().call_later(_PATIENCE_S, self.output.remark, waits)
            try:
                async with connect(
                    where, clock, SystemIds(clock), self.timeout_s, log_in=log_in
                ) as connection:
                    remark.cancel()
                    return await work(connection)
            finally:
                remark.cancel()

        return run_interruptibly(connected())


pass_session = click.make_pass_decorator(Session)


def _set_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Session).as_json = True


class Command(click.Command):
    """A command that also accepts `--json` after its name."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - click's own signature
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--json"],
                is_flag=True,
                expose_value=False,
                callback=_set_json,
                help="Print JSON for programs.",
            )
        )


class Group(click.Group):
    """A group whose commands are `Command`s."""

    command_class = Command
    group_class = type
