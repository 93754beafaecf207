"""Runs the command line and turns every failure into one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from tarn_cli.app import cli
from tarn_cli.commands.completion import COMPLETE_VARIABLE
from tarn_cli.exits import Exit, failure_of
from tarn_cli.session import Session

__all__ = ["main", "run_command"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `tarn`. Exits the process."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code."""
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(cli, {}, "tarn", COMPLETE_VARIABLE, instruction)
    return run_command(cli, "tarn", arguments)


def run_command(command: click.Command, name: str, arguments: Sequence[str]) -> int:
    """Runs a command line of its own, with the same errors and exit codes; returns the exit code."""
    context: click.Context | None = None
    try:
        context = command.make_context(name, list(arguments))
        with context:
            command.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.Abort:
        click.echo("aborted", err=True)
        return Exit.FAILURE
    except click.ClickException as error:
        error.show()
        return Exit.USAGE
    except BrokenPipeError:
        # The reader (`head`) has closed the pipe. That is no error, but no more output is possible.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        session = context.find_object(Session) if context else None
        if session is not None and session.debug:
            raise
        return _tell(error, as_json=session is not None and session.as_json)
    return Exit.OK


def _tell(error: Exception, *, as_json: bool) -> int:
    failure = failure_of(error)
    if failure is None:
        what = f"{type(error).__name__}: {error}".replace("\n", " ")
        click.echo(f"tarn: unexpected {what} (--debug shows the traceback)", err=True)
        return Exit.FAILURE
    click.echo(failure.json() if as_json else f"tarn: {failure.line()}", err=True)
    return failure.exit_code


if __name__ == "__main__":
    main()
