"""`tarn auth rotate-master-key`: seals all users' secret keys with the installation's current secret."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tarn.config import Config, ConfigError, installation_secrets
from tarn.core.errors import TarnError
from tarn.kv.keys import AuthKeys
from tarn.kv.opening import open_kv
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn_auth.registers import Registers
from tarn_auth.resealing import Seals, count_seals, reseal
from tarn_auth.secret_box import SecretBox
from tarn_cli.audited import audited
from tarn_cli.commands.up import config_option, data_dir_option
from tarn_cli.context import store_config
from tarn_cli.exits import CliError, Exit
from tarn_cli.interrupts import run_interruptibly
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.session import Command, Session, pass_session

__all__ = ["rotate_master_key"]


@click.command("rotate-master-key", cls=Command)
@config_option
@data_dir_option
@click.option("--kv", default="", help="The metadata store, as in `tarn up --kv`.")
@click.option("--status", "is_status", is_flag=True, help="Only show which keys seal how many.")
@pass_session
def rotate_master_key(
    session: Session, config_file: Path | None, data_dir: Path | None, kv: str, is_status: bool
) -> None:
    """Seal all users' secret keys with the installation's current secret.

    It opens the metadata store itself, while Tarn runs. Give it the same installation.secret and
    installation.previous_secret as auth. If it is interrupted, run it again. Exit code 1: some secret keys still
    need an earlier secret.

    \b
    Examples:
      tarn auth rotate-master-key --config tarn.yaml
      tarn auth rotate-master-key --config tarn.yaml --status
    """
    config = store_config(
        session, config_file, data_dir, variables=kv_variables(kv, None), with_blocks=False
    )
    try:
        with logging_to(LogConfig(level="error", format="text")):
            seals = run_interruptibly(_work(session, config, _box(config), is_status=is_status))
    except TarnError as error:
        raise CliError(Exit.FAILURE, error.message) from error
    session.output.one(
        {
            "current_key_id": seals.current_key_id,
            "sealed_by": dict(seals.by_key_id),
            "waiting": seals.waiting,
            "lost": seals.lost,
        }
    )
    if seals.waiting:
        text = "an earlier secret is still needed; keep installation.previous_secret"
        session.output.remark(text)
        raise click.exceptions.Exit(Exit.FAILURE)
    session.output.remark("no secret key needs an earlier secret")


async def _work(session: Session, config: Config, box: SecretBox, *, is_status: bool) -> Seals:
    clock = SystemClock()
    kv = await open_kv(config, clock, SystemIds(clock))
    try:
        registers = Registers(kv, AuthKeys(config.installation.id).partition)
        if is_status:
            return await count_seals(registers, box)
        with audited(config, clock, "auth rotate-master-key"):
            return await reseal(
                registers,
                box,
                lambda read, sealed: session.output.remark(
                    f"{read} key pairs read, {sealed} sealed again"
                ),
            )
    finally:
        await kv.close()


def _box(config: Config) -> SecretBox:
    try:
        secrets = installation_secrets(config, make=(config.data_dir / "secret").exists())
    except ConfigError as error:
        raise CliError(Exit.USAGE, error.message) from error
    return SecretBox(secrets, os.urandom)
