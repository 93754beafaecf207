"""`tarn context`: shows which installation commands use, and where each part comes from."""

from __future__ import annotations

import click

from tarn_cli.context import FOLDER
from tarn_cli.node.data_dir import DataDir
from tarn_cli.session import Command, Session, pass_session

__all__ = ["context"]


@click.command(cls=Command)
@pass_session
def context(session: Session) -> None:
    """Show which installation commands use: addresses, key, data folder, and the files that name them.

    The folder .tarn is searched from the working directory upwards, as git searches .git. It holds the file
    credentials (`tarn auth setup --save .tarn/credentials`), or is a data folder, or both. Flags and TARN_ variables
    go over it, and the user's own config.yaml stands below it. If Tarn runs on the data folder, its present addresses
    are used. Commands that open stores take them from here, or from --data-dir or --config.

    \b
    Examples:
      tarn context
      tarn --json context
    """
    found = session.context()
    settings = found.settings
    record: dict[str, object] = {
        "folder": str(found.folder or ""),
        "files": [str(path) for path in found.files],
        "server": settings.server,
        "auth_server": settings.auth_server or settings.server,
        "endpoint": settings.endpoint,
        "compactor_server": settings.compactor_server,
        "access_key_id": settings.access_key_id,
        "secret_access_key": "set" if settings.secret_access_key else "not set",
        "data_dir": str(found.data_dir or ""),
        "data_dir_from": found.data_dir_source,
        "config_file": str(found.config_file or ""),
        "runs": found.data_dir is not None and DataDir(found.data_dir).is_locked(),
    }
    session.output.one(record)
    if found.is_refreshed:
        session.output.remark(
            "the addresses are those of the running Tarn; saved ones are of an earlier start"
        )
    for folder in found.passed_over:
        session.output.remark(
            f"{folder} belongs to another user, or others may change it: it is not used"
        )
    if found.folder is None:
        session.output.remark(f"no folder {FOLDER} from here upwards")
