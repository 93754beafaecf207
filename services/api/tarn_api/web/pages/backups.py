"""Backups, as the commands that made them told the audit log of this machine: no service makes or keeps one.

A command writes a record before its work and one after it (`tarn_cli.audited`). What is missing is told, too: a command
without its second record runs, or its process died.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from msgspec import Struct

from tarn.core.access.actions import AUDIT, Action
from tarn.telemetry.audit.record import Outcome
from tarn.telemetry.audit.searching import AuditQuery
from tarn_api.context import Context
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, render
from tarn_api.web.pages.audit import searched

__all__ = ["Run", "show"]

_COMMANDS: Final = AuditQuery(operation="command:backup ", process="command-0")
_HOUR_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a command about backups.

    Attributes:
        command: `create`, `prune` or `restore`.
        place: of the backups, as it was given.
        begin_us, end_us: Unix microseconds; None: the record is not among those that were read.
        outcome: in words.
        who: user of the operating system, and the host.
        is_backup: whether it is a finished backup.
    """

    command: str
    place: str
    begin_us: int | None
    end_us: int | None
    outcome: str
    who: str
    is_backup: bool


async def show(context: Context, at: Struct) -> Page:
    """The last commands about backups, the newest one first, and the age of the newest backup."""
    del at
    context.require(Action.READ_AUDIT, AUDIT)
    backend, found = context.backend, await searched(context, _COMMANDS)
    runs = [] if found is None else list(_runs(found.records))
    newest = next((each.begin_us or each.end_us for each in runs if each.is_backup), None)
    return render(
        context,
        "backups.html",
        title="Backups",
        crumbs=[Crumb("Administration", links.to("administration")), Crumb("Backups")],
        folder=str(backend.audit_folder or ""),
        found=found,
        runs=runs,
        hours=None if newest is None else max(0, backend.clock.now_us() - newest) // _HOUR_US,
    )


def _runs(records: Sequence[Mapping[str, object]]) -> Iterator[Run]:
    """Yields the runs that records tell about, in the order of their last ones."""
    begins: dict[tuple[str, ...], list[int]] = {}
    for record in records:
        if _detail(record, "step") == "begin":
            begins.setdefault(_key(record), []).append(_time_us(record))
    ended: dict[tuple[str, ...], int] = {}
    for record in records:
        key = _key(record)
        if _detail(record, "step") == "end":
            ended[key] = ended.get(key, 0) + 1
            # Both lists are the newest first, and a process runs one command.
            begin_us = begins[key].pop(0) if begins.get(key) else None
            yield _run(record, begin_us, _time_us(record), str(record["outcome"]))
        elif ended.get(key):
            ended[key] -= 1
        else:
            yield _run(record, _time_us(record), None, "")


def _run(
    record: Mapping[str, object], begin_us: int | None, end_us: int | None, outcome: str
) -> Run:
    command = str(record["operation"]).removeprefix(_COMMANDS.operation)
    is_done = outcome == Outcome.OK
    reason = str(record.get("reason") or "")
    words = "finished" if is_done else f"failed: {reason or outcome}"
    if end_us is None:
        words = "runs, or its process died"
    return Run(
        command=command,
        place=_detail(record, "target"),
        begin_us=begin_us,
        end_us=end_us,
        outcome=words,
        who=f"{_detail(record, 'os_user')} on {_detail(record, 'host')}",
        is_backup=is_done and command == "create",
    )


def _key(record: Mapping[str, object]) -> tuple[str, ...]:
    """Returns what both records of a run have."""
    names = ("host", "pid", "target")
    return (str(record["operation"]), *(_detail(record, name) for name in names))


def _detail(record: Mapping[str, object], name: str) -> str:
    details = record.get("details")
    return str(details.get(name, "")) if isinstance(details, dict) else ""


def _time_us(record: Mapping[str, object]) -> int:
    """Returns the time of a record; the search has parsed it."""
    return int(datetime.fromisoformat(str(record["time"])).timestamp() * 1_000_000)
