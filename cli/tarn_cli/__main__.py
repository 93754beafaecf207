"""Runs the command line and turns every failure into one line and an exit code."""

from __future__ import annotations

import gc
import io
import os
import sys
import traceback
from collections.abc import Sequence

import click
from click.shell_completion import shell_complete

from tarn_cli.app import cli
from tarn_cli.commands.completion import COMPLETE_VARIABLE
from tarn_cli.exits import Exit, Failure
from tarn_cli.session import Session
from tarn_cli.terminal import write_line, write_lines

__all__ = ["main", "run_command"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `tarn`. Exits the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a name may have characters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    code = run(sys.argv[1:] if arguments is None else arguments)
    # At its end the interpreter would go through all modules to look for garbage: a fifth of a second.
    gc.freeze()
    sys.exit(code)


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
        write_line("aborted", err=True)
        return Exit.FAILURE
    except click.ClickException as error:
        return _tell_usage(error)
    except BrokenPipeError:
        # The reader (`head`) has closed the pipe. That is no error, but no more output is possible.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last one: it tells all that others raise
        session = context.find_object(Session) if context else None
        if session is not None and session.debug:
            lines = "".join(traceback.format_exception(error)).splitlines()
            write_lines((f"  {line}" for line in lines), err=True)
        return _tell(error, as_json=session is not None and session.as_json)
    return Exit.OK


def _tell(error: Exception, *, as_json: bool) -> int:
    from tarn_cli.failures import failure_of  # with the errors of boto3: a tenth of a second

    failure = failure_of(error)
    if failure is None:
        what = f"unexpected {type(error).__name__}: {error}"
        failure = Failure(Exit.FAILURE, "UNEXPECTED", what, "--debug shows the traceback")
    if as_json:
        write_line(failure.json(), err=True)
    else:
        write_lines([f"tarn: {failure.line()}", *failure.details], err=True)
    return failure.exit_code


def _tell_usage(error: click.ClickException) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    session = context.find_object(Session) if context else None
    text = error.format_message().replace("\n\t", " ")  # click's choices
    if session is not None and session.as_json:
        write_line(Failure(Exit.USAGE, "USAGE", text).json(), err=True)
        return Exit.USAGE
    if context is not None:
        write_lines(context.get_usage().splitlines(), err=True)
        write_line(f"Try '{context.command_path} --help' for help.", err=True)
        write_line(err=True)
    write_line(f"Error: {text}", err=True)
    return Exit.USAGE


if __name__ == "__main__":
    main()
