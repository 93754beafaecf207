"""`tarn auth session`: session keys, which act for their user for some hours."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tarn.core.access.session_policy import permissions_for
from tarn.core.ids import parse_repository_id
from tarn.core.refs import parse_ref as parse_core_ref
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import parse_ref, parse_repository
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_proto.auth.v1.session_key_service_pb2 import (
    Binding,
    CreateSessionKeyRequest,
    CreateSessionKeyResponse,
    SessionKey,
)

__all__ = ["duration_s", "session_keys"]

_COLUMNS = ("access_key_id", "user", "description", "expires", "buckets")


def _record(key: SessionKey) -> Record:
    return {
        "access_key_id": key.access_key_id,
        "user": key.user_id,
        "description": key.description,
        "created": shown_time(key.create_time),
        "expires": shown_time(key.expire_time),
        "renewable_until": shown_time(key.renew_until_time),
        "issued_by": key.issuer_access_key_id,
        "permissions": [
            {"actions": list(each.actions), "resources": list(each.resources)}
            for each in key.permissions
        ],
        "buckets": {each.bucket_id: f"{each.repository_id}/{each.ref}" for each in key.bindings},
    }


def duration_s(text: str) -> int:
    """Returns the seconds of the life of a session key, such as 1h.

    Raises:
        click.UsageError: it is none, or out of bounds.
    """
    from tarn.config.values import Sort, Within, parse_value

    try:
        milliseconds = parse_value(Within(Sort.DURATION, "15m", "12h"), text, Path())
    except ValueError as error:
        raise click.UsageError(f"the life of a session key {error}") from error
    assert isinstance(milliseconds, int)
    return milliseconds // 1000


def _place(text: str) -> tuple[str, str, str]:
    """Parses `lake`, `lake/main` or `lake/main/raw/`."""
    repository, _, rest = text.partition("/")
    ref, _, prefix = rest.partition("/")
    if ref:
        parse_core_ref(ref)
    return parse_repository_id(repository), ref, prefix


def _binding(text: str) -> Binding:
    bucket, equals, target = text.partition("=")
    if not equals:
        hint = "e.g. --bind sales=lake/experiment"
        raise CliError(Exit.USAGE, f"--bind {text!r} is not BUCKET=REPOSITORY/REF", hint)
    uri = parse_ref(target)
    return Binding(bucket_id=parse_repository(bucket), repository_id=uri.repository, ref=uri.ref)


@click.group(name="session", cls=Group)
def session_keys() -> None:
    """Session keys: keys with a token and an end, with at most your rights, for S3 clients and jobs."""


@session_keys.command()
@click.option("--expires", default="1h", show_default=True, help="Its life, 15m to 12h.")
@click.option("--description", default="", help="Its purpose.")
@click.option("--read-only", is_flag=True, help="It may only read.")
@click.option(
    "--only",
    multiple=True,
    metavar="REPOSITORY[/REF[/PREFIX]]",
    help="It may use this repository, ref or prefix of paths only. May be repeated.",
)
@click.option(
    "--bind",
    multiple=True,
    metavar="BUCKET=REPOSITORY/REF",
    help="With this key, the bucket shows this ref. May be repeated.",
)
@click.option(
    "--export", is_flag=True, help="Print commands of a shell that set the AWS_* variables."
)
@pass_session
def create(
    session: Session,
    expires: str,
    description: str,
    read_only: bool,
    only: tuple[str, ...],
    bind: tuple[str, ...],
    export: bool,
) -> None:
    """Create a session key of yours and print its secret and token, which are not shown again.

    It changes data at most: repositories, rules, users and keys are out of its reach, whatever your role. It ends with
    the key pair that creates it.

    \b
    Examples:
      tarn auth session create --only lake/main/raw/ --read-only
      eval "$(tarn auth session create --bind sales=lake/experiment --export)"
    """
    request = CreateSessionKeyRequest(
        duration_s=duration_s(expires),
        description=description,
        bindings=[_binding(each) for each in bind],
    )
    for each in permissions_for(map(_place, only), read_only=read_only):
        request.permissions.add(actions=each.actions, resources=each.resources)
    made = session.run(lambda tarn: tarn.auth.create_session_key(tarn.call(), request))
    _show(session, made, export=export)


def _show(session: Session, made: CreateSessionKeyResponse, *, export: bool) -> None:
    key = made.session_key
    if export:
        variables = {
            "AWS_ACCESS_KEY_ID": key.access_key_id,
            "AWS_SECRET_ACCESS_KEY": made.secret_access_key,
            "AWS_SESSION_TOKEN": made.session_token,
            "AWS_ENDPOINT_URL": session.settings().endpoint,
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        session.output.one(variables, lines)
        return
    secrets = {
        "secret_access_key": made.secret_access_key,
        "session_token": made.session_token,
    }
    text = [
        f"Access key id:      {key.access_key_id}",
        f"Secret access key:  {made.secret_access_key}",
        f"Session token:      {made.session_token}",
        f"Expires:            {shown_time(key.expire_time)}",
    ]
    session.output.one({**_record(key), **secrets}, text)
    session.output.remark("The secret and the token are not shown again.")


@session_keys.command(name="list")
@click.option("--user", "user_id", default="", help="User for whom they act.  [default: you]")
@pass_session
def list_(session: Session, user_id: str) -> None:
    """List session keys that live, without their secrets."""
    from tarn_cli.connection import collect

    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.auth.list_session_keys(
                tarn.call(), user_id=user_id, page_size=size, page_token=token
            ),
            lambda page: page.session_keys,
        )
    )
    session.output.many(map(_record, found), _COLUMNS, empty="no session keys")


@session_keys.command()
@click.argument("access_key_id")
@click.option("--expires", default="1h", show_default=True, help="Its life from now, 15m to 12h.")
@pass_session
def renew(session: Session, access_key_id: str, expires: str) -> None:
    """Let a session key live longer, for 36 hours since its creation at most."""
    seconds = duration_s(expires)
    found = session.run(
        lambda tarn: tarn.auth.renew_session_key(tarn.call(), access_key_id, duration_s=seconds)
    )
    session.output.one(_record(found))


@session_keys.command()
@click.argument("access_key_id")
@pass_session
def end(session: Session, access_key_id: str) -> None:
    """End a session key. Requests that it began may still be served for 10 seconds."""
    session.run(lambda tarn: tarn.auth.end_session_key(tarn.call(), access_key_id))
    session.output.remark(f"ended {access_key_id}")
