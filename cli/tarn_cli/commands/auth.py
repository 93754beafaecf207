"""`tarn auth`: the first admin, logging in, users and their keys."""

from __future__ import annotations

import base64
import secrets
from dataclasses import replace
from pathlib import Path

import click

from tarn.client.auth import NewCredential
from tarn.config import Config, ConfigError, installation_secret
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import parse_user_id
from tarn_cli.commands.rotation import rotate_master_key
from tarn_cli.commands.session_keys import session_keys
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import data_folder
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.data_dir import DataDir
from tarn_cli.node.plan import read_config
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_cli.settings import (
    Settings,
    default_file,
    read_file,
    settings_of_environment,
    write_file,
)
from tarn_cli.terminal import confirm, prompt
from tarn_proto.auth.v1.user_pb2 import Credential, User

__all__ = ["auth"]


def _user_record(user: User) -> Record:
    return {
        "user": user.user_id,
        "roles": list(user.roles),
        "created": shown_time(user.create_time),
    }


def _credential_record(credential: Credential) -> Record:
    return {
        "access_key_id": credential.access_key_id,
        "user": credential.user_id,
        "description": credential.description,
        "created": shown_time(credential.create_time),
        "last_use": shown_time(credential.use_time) if credential.HasField("use_time") else "",
        "last_use_kind": credential.use_kind,
    }


def _new_pair() -> Settings:
    """A new random key pair in the same form as those that auth makes."""
    key = "TARN" + base64.b32encode(secrets.token_bytes(10)).decode()
    return Settings(
        access_key_id=key, secret_access_key=base64.b32encode(secrets.token_bytes(25)).decode()
    )


def _show_new(session: Session, made: NewCredential) -> None:
    record = {**_credential_record(made.credential), "secret_access_key": made.secret_access_key}
    text = [
        f"Access key id:      {made.credential.access_key_id}",
        f"Secret access key:  {made.secret_access_key}",
    ]
    session.output.one(record, text)


@click.group(cls=Group)
def auth() -> None:
    """Users, keys and logging in."""


auth.add_command(rotate_master_key)
auth.add_command(session_keys)


@auth.command()
@config_option
@data_dir_option
@click.option("--user", default="admin", show_default=True, help="Name of the first admin.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write server and key to this settings file (mode 0600).",
)
@click.option("--if-needed", is_flag=True, help="Succeed if the first admin exists already.")
@pass_session
def setup(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    user: str,
    save: Path | None,
    if_needed: bool,
) -> None:
    """Create the first admin and print its key. Works once per installation.

    Needs the installation's secret, from the configuration or from the data folder of the Tarn that
    runs on this machine.

    \b
    Example:
      tarn auth setup --save .tarn/credentials
    """
    from tarn_cli.connection import Connection

    name = parse_user_id(user)
    if config_file is None:
        data_dir = data_folder(session, None, data_dir)
    config = read_config(config_file, session.environment, data_dir)
    where = DataDir(config.data_dir)
    try:
        secret = installation_secret(config, make=where.secret_file.exists())
    except ConfigError as error:
        hint = "start Tarn with `tarn up`, or give its data folder with --data-dir"
        raise CliError(Exit.NOT_FOUND, str(error), hint) from error
    settings = _installation(session, config, where, config_file)

    kept = Settings() if save is None else read_file(save)
    pair = kept if kept.secret_access_key else _new_pair()

    async def work(tarn: Connection) -> NewCredential | None:
        if if_needed and (await tarn.auth.get_setup_state(tarn.call())).is_set_up:
            return None
        if save is not None:
            # Saved before the request: if the answer is lost, repeating it with this pair returns it.
            key, new_secret = pair.access_key_id, pair.secret_access_key
            write_file(save, replace(settings, access_key_id=key, secret_access_key=new_secret))
        return await tarn.auth.set_up(
            tarn.call(),
            secret,
            name,
            access_key_id=pair.access_key_id,
            secret_access_key=pair.secret_access_key,
        )

    try:
        made = session.run(work, log_in=False, settings=settings)
    except TarnError as error:
        if error.reason is Reason.ALREADY_SET_UP and save is not None and pair is not kept:
            save.unlink(missing_ok=True)  # auth does not know the pair in it
        raise
    if made is not None:
        _show_new(session, made)
        session.output.remark("The secret is not shown again.")
        return
    if save is not None:
        # Set up earlier: the key is in the file, but Tarn may listen on another address now.
        write_file(save, settings.over(read_file(save).require_key()))
    session.output.remark("this installation is set up already")


def _installation(
    session: Session, config: Config, where: DataDir, config_file: Path | None
) -> Settings:
    """Addresses and place of an installation: what the user says, what runs, what is configured, in this order."""
    said = session.flags.over(settings_of_environment(session.environment))
    configured = Settings() if config_file is None else _configured(config)
    settings = said.over(where.settings()).over(configured).over(session.settings())
    return replace(
        settings,
        access_key_id="",
        secret_access_key="",
        data_dir=str(where.path) if where.path.is_dir() else "",
        config_file="" if config_file is None else str(config_file.absolute()),
    )


def _configured(config: Config) -> Settings:
    """The addresses in the configuration of the services."""
    services, s3 = config.services, config.gateways.s3
    host, _, port = s3.listen_address.rpartition(":")
    scheme = "http" if s3.tls.cert is None else "https"
    here = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}  # noqa: S104 - not bound here
    return Settings(
        server=services.graveler.addresses[0],
        auth_server=services.auth.addresses[0],
        compactor_server=services.compactor.addresses[0],
        endpoint=f"{scheme}://{here.get(host, host)}:{port}",
    )


@auth.command()
@pass_session
def login(session: Session) -> None:
    """Check a key and save it in your settings file.

    Prompts for the values that neither flags nor the environment give.

    \b
    Example:
      tarn --server lake.example.org:8102 --endpoint https://lake.example.org auth login
    """
    given = session.settings()
    said = session.flags.over(settings_of_environment(session.environment))
    key = said.access_key_id or prompt("Access key id", default=given.access_key_id or None)
    secret = said.secret_access_key or prompt("Secret access key", is_secret=True)
    settings = replace(given, access_key_id=key, secret_access_key=secret)
    caller = session.run(lambda tarn: tarn.auth.get_caller(tarn.call()), settings=settings)
    file = session.settings_file or default_file(session.environment)
    write_file(file, settings)
    session.output.one(
        {"user": caller.user.user_id, "file": str(file)},
        f"logged in as {caller.user.user_id}; the key is saved in {file}",
    )


@auth.command()
@pass_session
def whoami(session: Session) -> None:
    """Show your user and its roles."""
    caller = session.run(lambda tarn: tarn.auth.get_caller(tarn.call()))
    session.output.one(_user_record(caller.user))


@auth.command()
@click.argument("action")
@click.argument("resource")
@click.option("--user", "user_id", default="", help="User whom you ask about.  [default: you]")
@pass_session
def check(session: Session, action: str, resource: str, user_id: str) -> None:
    """Tell whether a user may do an action on a resource, and by which role.

    Exits with 4 if not. Rules of the repository and quotas may refuse what a role allows.

    \b
    Example:
      tarn auth check WriteRepo repository/lake/branch/main/object/prices.csv --user ada
    """
    found = session.run(
        lambda tarn: tarn.auth.check_access(tarn.call(), action, resource, user_id=user_id)
    )
    deciding = [
        {
            "role": each.role,
            "effect": "allow" if each.statement.allow else "deny",
            "actions": list(each.statement.actions),
            "resources": list(each.statement.resources),
        }
        for each in found.deciding
    ]
    names = " ".join(dict.fromkeys(each.role or "every user" for each in found.deciding))
    verdict = "allowed" if found.is_allowed else "denied"
    session.output.one(
        {"user": found.user_id, "allowed": found.is_allowed, "deciding": deciding},
        f"{verdict}: {names or 'no role allows it'}",
    )
    if not found.is_allowed:
        raise click.exceptions.Exit(Exit.DENIED)


@auth.command()
@pass_session
def token(session: Session) -> None:
    """Print a caller token, for programs that call Tarn's gRPC themselves. It is a secret, valid for an hour.

    \b
    Example:
      grpcurl -plaintext -H "authorization: Bearer $(tarn auth token)" -d '{"repository_id": "lake"}' \\
        127.0.0.1:8102 tarn.graveler.v1.BranchService/ListBranches
    """
    made = session.run(lambda tarn: tarn.log_in())
    session.output.one({"caller_token": made}, made)


@auth.group(cls=Group)
def user() -> None:
    """Users and their roles: Admin, Developer, Analyst."""


_roles = click.option(
    "--role", "roles", multiple=True, required=True, metavar="ROLE", help="May be repeated."
)


@user.command(name="create")
@click.argument("user_id", metavar="USER")
@_roles
@pass_session
def create_user(session: Session, user_id: str, roles: tuple[str, ...]) -> None:
    """Create a user without a key.

    \b
    Example:
      tarn auth user create ada --role Developer
      tarn auth credential create --user ada
    """
    name = parse_user_id(user_id)
    made = session.run(lambda tarn: tarn.auth.create_user(tarn.call(), name, roles))
    session.output.one(_user_record(made))


@user.command(name="list")
@pass_session
def list_users(session: Session) -> None:
    """List the users."""
    from tarn_cli.connection import collect

    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.auth.list_users(tarn.call(), page_size=size, page_token=token),
            lambda page: page.users,
        )
    )
    session.output.many(map(_user_record, found), ("user", "roles", "created"), empty="no users")


@user.command(name="show")
@click.argument("user_id", metavar="USER")
@pass_session
def show_user(session: Session, user_id: str) -> None:
    """Show one user."""
    found = session.run(lambda tarn: tarn.auth.get_user(tarn.call(), user_id))
    session.output.one(_user_record(found))


@user.command(name="roles")
@click.argument("user_id", metavar="USER")
@_roles
@pass_session
def update_roles(session: Session, user_id: str, roles: tuple[str, ...]) -> None:
    """Replace the roles of a user."""
    found = session.run(lambda tarn: tarn.auth.update_user_roles(tarn.call(), user_id, roles))
    session.output.one(_user_record(found))


@user.command(name="delete")
@click.argument("user_id", metavar="USER")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@pass_session
def delete_user(session: Session, user_id: str, yes: bool) -> None:
    """Delete a user and its keys."""
    if not yes:
        confirm(f"Delete {user_id} and its keys?")
    session.run(lambda tarn: tarn.auth.delete_user(tarn.call(), user_id))
    session.output.remark(f"deleted {user_id}")


@auth.group(cls=Group)
def credential() -> None:
    """Key pairs. A user may have several, so that one can be replaced without downtime."""


@credential.command(name="create")
@click.option("--user", "user_id", default="", help="User that will own it.  [default: you]")
@click.option("--description", default="", help="Its purpose.")
@pass_session
def create_credential(session: Session, user_id: str, description: str) -> None:
    """Create a key and print its secret, which is not shown again."""
    made = session.run(
        lambda tarn: tarn.auth.create_credential(
            tarn.call(), user_id=user_id, description=description
        )
    )
    _show_new(session, made)
    session.output.remark("The secret is not shown again.")


@credential.command(name="list")
@click.option("--user", "user_id", default="", help="User that owns the keys.  [default: you]")
@pass_session
def list_credentials(session: Session, user_id: str) -> None:
    """List keys, without their secrets, with the last use of each: by the hour, empty if none was seen."""
    from tarn_cli.connection import collect

    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.auth.list_credentials(
                tarn.call(), user_id=user_id, page_size=size, page_token=token
            ),
            lambda page: page.credentials,
        )
    )
    columns = ("access_key_id", "user", "description", "created", "last_use", "last_use_kind")
    session.output.many(map(_credential_record, found), columns, empty="no keys")


@credential.command(name="delete")
@click.argument("access_key_id")
@pass_session
def delete_credential(session: Session, access_key_id: str) -> None:
    """Delete a key."""
    session.run(lambda tarn: tarn.auth.delete_credential(tarn.call(), access_key_id))
    session.output.remark(f"deleted {access_key_id}")
