"""`tarn config`: shows the settings of the command line and the configuration keys of the services."""

from __future__ import annotations

from dataclasses import asdict

import click

from tarn_cli.session import Group, Session, pass_session
from tarn_cli.settings import variable_of
from tarn_cli.terminal import write_lines

__all__ = ["config"]


@click.group(cls=Group)
def config() -> None:
    """Settings of the command line and of the services."""


@config.command()
@pass_session
def show(session: Session) -> None:
    """Show the addresses and the access key id that commands use; never the secret."""
    context = session.context()
    settings = context.settings
    record: dict[str, object] = asdict(settings)
    record["secret_access_key"] = "set" if settings.secret_access_key else "not set"
    session.output.one(record)
    files = ", ".join(map(str, context.files)) or "no file"
    variables = ", ".join(variable_of(name) for name in asdict(settings))
    session.output.remark(f"from flags, {variables}, {files}")


@config.command()
@pass_session
def reference(session: Session) -> None:
    """Print every key of the services' configuration, as Markdown."""
    from tarn.config import KEYS, describe

    if session.as_json:
        keys = ({"key": key.name, "default": key.default, "meaning": key.doc} for key in KEYS)
        session.output.many(keys, ())
    else:
        write_lines(describe().splitlines())
