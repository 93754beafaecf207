"""Times in the arguments of commands."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from tarn_cli.exits import CliError, Exit

__all__ = ["local_now", "parse_time"]

_AGO = re.compile(r"(\d{1,6}) (minute|hour|day|week)s? ago")


def local_now() -> datetime:
    """Returns the time of this machine, from which ages count, in whole seconds."""
    from tarn.rpc.process.system import SystemClock

    return datetime.fromtimestamp(SystemClock().now_us() // 1_000_000, UTC)


def parse_time(text: str, now: datetime) -> Timestamp:
    """Parses `2026-05-01`, `2026-05-01T08:30:00`, the same with a zone (else UTC), or `3 days ago`.

    Raises:
        CliError: USAGE.
    """
    try:
        if ago := _AGO.fullmatch(text):
            time = now - timedelta(**{f"{ago[2]}s": int(ago[1])})
        else:
            time = datetime.fromisoformat(text)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        stamp = Timestamp()
        stamp.FromDatetime(time)  # its zone may put it before the year 1
    except (ValueError, OverflowError) as error:
        hint = "expected e.g. 2026-05-01, 2026-05-01T08:30:00Z or '3 days ago'"
        raise CliError(Exit.USAGE, f"{text!r} is not a time", hint) from error
    return stamp
