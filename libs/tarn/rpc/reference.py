"""The rules of all rpcs as Markdown, at the end of `docs/design/rpcs.md`.

`make proto` writes them there: `python -m tarn.rpc.reference docs/design/rpcs.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from google.protobuf.descriptor import ServiceDescriptor

from tarn.rpc.rules import Rule, rules_of
from tarn.rpc.services import SERVICES

__all__ = ["describe", "write_into"]


def describe() -> str:
    """Returns one table for each service; ends with a line break."""
    services = [each for served in SERVICES.values() for each in served]
    return "\n\n".join(map(_table, services)) + "\n"


def write_into(document: Path) -> None:
    """Replaces the tables of a document, which begin with the first heading of a service and go on to its end."""
    text = document.read_text()
    before, heading, _ = text.partition("### tarn.")
    if not heading:
        raise ValueError(f"{document} has no table of a service: no line begins with '### tarn.'")
    document.write_text(before + describe())


def _table(service: ServiceDescriptor) -> str:
    lines = [f"### {service.full_name}", ""]
    lines += ["| rpc | action | resource | changes something |", "| --- | --- | --- | --- |"]
    for rule in rules_of(service).values():
        lines += [_row(rule), *map(_row, rule.also.values())]
    return "\n".join(lines)


def _row(rule: Rule) -> str:
    name = rule.name.partition(".")[2]
    changes = "no" if rule.read_only else "yes"
    if rule.change is not None:
        changes = f"yes: `{rule.change}`"
    if rule.through:
        changes += ", through " + " or ".join(f"`{each}`" for each in sorted(rule.through))
    if rule.public_read:
        changes += "; also without a user, through a public-read bucket view"
    if rule.services:
        return f"| {name} | none: for {', '.join(sorted(rule.services))} only |  | {changes} |"
    if rule.action is None:
        return f"| {name} | none: {rule.public_because} |  | {changes} |"
    return f"| {name} | `{rule.action}` | `{rule.resource.template}` | {changes} |"


if __name__ == "__main__":
    write_into(Path(sys.argv[1]))
