"""Audit records of commands that change the stores themselves, without a service (docs/operate/audit.md).

A command writes two records: one before its change, so that one that is killed leaves a trace, and one at its end.
"""

from __future__ import annotations

import os
import pwd
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from tarn.config import Config
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.telemetry.audit.files import AuditFile
from tarn.telemetry.audit.record import AuditRecord, Outcome, line_of

__all__ = ["audited"]

_SERVICE = "command"

_log = structlog.get_logger()


@contextmanager
def audited(config: Config, clock: Clock, command: str, **details: str | int) -> Iterator[None]:
    """Records the work of a command within the block, if the configuration has an audit log.

    If a record cannot be written, the log says so, and the command goes on. With `audit.output: stdout` they go to
    standard error, because standard output is for the result.

    Args:
        config: of the installation that is changed.
        clock: times of the records.
        command: the words of the command, such as `kv load`.
        details: further facts, no secrets.
    """
    about = {"os_user": _os_user(), "host": socket.gethostname(), "pid": os.getpid(), **details}

    def write(step: str, outcome: Outcome, reason: str = "") -> None:
        record = AuditRecord(
            clock.now_us(),
            f"command:{command}",
            "",
            outcome,
            reason,
            *("", "", "", ""),
            details={"step": step, **about},
        )
        try:
            _write(config, line_of(_SERVICE, record))
        except OSError as error:
            _log.error("audit record lost", command=command, step=step, error=str(error))

    if config.audit.output == "off":
        yield
        return
    write("begin", Outcome.UNKNOWN)
    try:
        yield
    except BaseException as error:
        # Part of the change may have been made.
        reason = error.reason.value if isinstance(error, TarnError) else type(error).__name__
        write("end", Outcome.UNKNOWN, reason)
        raise
    write("end", Outcome.OK)


def _write(config: Config, line: str) -> None:
    audit = config.audit
    if audit.output == "stdout":
        sys.stderr.write(line)
        sys.stderr.flush()
        return
    file = AuditFile(audit.folder, _SERVICE, audit.file_size_bytes, audit.files)
    try:
        file.write(line)
    finally:
        file.close()


def _os_user() -> str:
    user_id = os.getuid()
    with suppress(KeyError):  # a container's user may have no name
        return pwd.getpwuid(user_id).pw_name
    return str(user_id)
