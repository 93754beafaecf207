"""The context of a command: the installation that it is about, found as git finds a repository.

The folder `.tarn` is searched from the working directory upwards; folders that other users own or may change are passed
over. It holds `credentials` (`tarn_cli.settings`), is the data folder of a Tarn, or both. A file of settings may name
the data folder or the configuration of the services, as `tarn auth setup --save` writes them. The user's own file comes
after it.

Addresses that a file has saved are those of the last start. If a Tarn runs on the data folder of the file, its
addresses are used instead. Commands that open stores use `store_config`, and never guess.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tarn_cli.exits import CliError, Exit
from tarn_cli.settings import (
    Settings,
    default_file,
    read_file,
    settings_of_environment,
    variable_of,
)

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn.config import Config
    from tarn_cli.session import Session

__all__ = ["FOLDER", "Context", "data_folder", "resolve", "store_config"]

FOLDER: Final = ".tarn"
_FILE: Final = "credentials"
_STORES: Final = (
    "TARN_DATA_DIR",
    "TARN_BLOCKSTORE_TYPE",
    "TARN_BLOCKSTORE_LOCAL_PATH",
    "TARN_METADATA_DB_TYPE",
    "TARN_METADATA_DB_EMBEDDED_PATH",
)
_MARKS: Final = ("tarn.lock", "kv", "blocks")
"""What `tarn up` makes in a data folder."""


@dataclass(frozen=True, slots=True)
class Context:
    """The installation of a command.

    Attributes:
        settings: addresses and key pair, with defaults.
        folder: the folder `.tarn`; None if there is none.
        files: the files of settings that exist, the first one first.
        passed_over: folders `.tarn` that other users own or may change.
        data_dir: the data folder; None if nothing names one.
        data_dir_source: what names it.
        config_file: configuration of the services; None if nothing names one.
        is_refreshed: the addresses are those of the running Tarn, and differ from the saved ones.
    """

    settings: Settings
    folder: Path | None = None
    files: tuple[Path, ...] = ()
    passed_over: tuple[Path, ...] = ()
    data_dir: Path | None = None
    data_dir_source: str = ""
    config_file: Path | None = None
    is_refreshed: bool = False


def resolve(
    flags: Settings, environment: Mapping[str, str], file: Path | None, start: Path | None = None
) -> Context:
    """The context of a command.

    Args:
        flags: settings of the command line.
        environment: `TARN_SERVER`, `TARN_ACCESS_KEY_ID`, `TARN_DATA_DIR`, …
        file: of settings, read instead of all others; None: those that are found.
        start: the folder in which the search begins; None: the working directory.

    Raises:
        CliError: USAGE, a file cannot be read as settings; NOT_FOUND, `file` does not exist.
    """
    said = flags.over(settings_of_environment(environment))
    folder, passed_over = _search(start or _here())
    if file is not None:
        if not file.exists():
            raise CliError(Exit.NOT_FOUND, f"no such file: {file}")
        candidates = [file]
    else:
        local = [] if folder is None else [folder / _FILE]
        candidates = [*local, default_file(environment)]
    files = tuple(path for path in candidates if path.exists())
    settings, is_refreshed = said, False
    source = f"{variable_of('data_dir')} or a flag" if said.data_dir else ""
    for path in files:
        saved = _completed(read_file(path), path)
        present = _running(saved.data_dir).over(saved)
        present = replace(present, data_dir=saved.data_dir, config_file=saved.config_file)
        before = settings
        settings = settings.over(present)
        is_refreshed |= not before.server and present.server != saved.server != ""
        source = source or (str(path) if settings.data_dir else "")
    if file is None and folder is not None and not settings.data_dir and _is_data_folder(folder):
        settings = settings.over(replace(_running(str(folder)), data_dir=str(folder)))
        source = str(folder) if settings.data_dir else ""
    if (
        not settings.data_dir
        and not settings.config_file
        and _is_data_folder(_default(environment))
    ):
        default = str(_default(environment))
        present = _running(default)
        if settings.server in ("", present.server):  # not the folder of another server
            settings = settings.over(replace(present, data_dir=default))
            source = "the default of `tarn up`"
    return Context(
        settings.with_defaults(),
        folder,
        files,
        passed_over,
        Path(settings.data_dir) if settings.data_dir else None,
        source,
        Path(settings.config_file) if settings.config_file else None,
        is_refreshed,
    )


def store_config(
    session: Session,
    config_file: Path | None,
    data_dir: Path | None,
    *,
    variables: Mapping[str, str] | None = None,
    beside_server: bool = False,
    with_blocks: bool = True,
    may_be_new: bool = False,
) -> Config:
    """The configuration whose stores a command opens: that of the flags, of the environment, or of the context.

    Args:
        session: of the command.
        config_file: the flag `--config`.
        data_dir: the flag `--data-dir`.
        variables: go over the environment.
        beside_server: the command also asks a server, so the stores must be those of that server: with those of
            another one, all data would seem to be lost.
        with_blocks: the command opens the block store, too.
        may_be_new: the command makes the stores if they do not exist.

    Raises:
        CliError: NOT_FOUND, nothing names the stores, or they are not there; CONFLICT, they are those of another
            server; USAGE, the configuration is invalid.
    """
    from tarn_cli.node.plan import read_config

    context = session.context()
    environment = {**session.environment, **(variables or {})}
    is_named = bool(config_file or data_dir) or _names_stores(session.environment)
    if not is_named:
        config_file, data_dir = context.config_file, context.data_dir
    if not is_named and config_file is None and data_dir is None:
        text = "nothing names the stores of the installation"
        hint = "give --data-dir or --config; `tarn context` shows what was found"
        raise CliError(Exit.NOT_FOUND, text, hint)
    config = read_config(config_file, environment, data_dir)
    if not may_be_new:
        _check_there(config, with_metadata=not beside_server, with_blocks=with_blocks)
    if beside_server and _has_own_blocks(config):
        is_default = not is_named and context.data_dir == _default(environment)
        _check_server(config, context, is_default=is_default)
    return config


def data_folder(session: Session, config_file: Path | None, data_dir: Path | None) -> Path:
    """The data folder that the flags, the environment or the context name, else the default one; it need not exist.

    Other settings of the configuration do not matter, nor whether they are valid.

    Raises:
        CliError: USAGE, the configuration cannot be read.
    """
    from tarn_cli.node.plan import read_config

    if data_dir is not None:
        return data_dir.absolute()
    if config_file is not None:
        only = {
            name: session.environment[name]
            for name in ("HOME", "TARN_DATA_DIR")
            if name in session.environment
        }
        try:
            return read_config(config_file, only).data_dir
        except CliError:
            return read_config(None, {**only, **_data_dir_of(config_file)}).data_dir
    return session.context().data_dir or _default(session.environment)


def _data_dir_of(config_file: Path) -> dict[str, str]:
    import yaml

    try:
        found = yaml.safe_load(config_file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CliError(Exit.USAGE, f"{config_file} is not YAML") from error
    named = found.get("data_dir") if isinstance(found, dict) else None
    return {} if named is None else {"TARN_DATA_DIR": str(named)}


def _check_there(config: Config, *, with_metadata: bool, with_blocks: bool) -> None:
    hint = "name the stores by --data-dir or --config; `tarn context` shows what was found"
    kv, blocks = config.metadata.db, config.blockstore
    if with_metadata and kv.type == "embedded" and not kv.embedded.path.is_dir():
        raise CliError(Exit.NOT_FOUND, f"there is no metadata store at {kv.embedded.path}", hint)
    if with_blocks and blocks.type == "local" and not blocks.local.path.is_dir():
        raise CliError(Exit.NOT_FOUND, f"there is no block store at {blocks.local.path}", hint)


def _has_own_blocks(config: Config) -> bool:
    blocks = config.blockstore
    return blocks.type == "local" and blocks.local.path.is_relative_to(config.data_dir)


def _check_server(config: Config, context: Context, *, is_default: bool) -> None:
    """Checks that the blocks of a data folder are those of the server."""
    from tarn_cli.node.data_dir import DataDir

    server, state = context.settings.server, DataDir(config.data_dir).state()
    if state is None and is_default:
        text = (
            f"no Tarn runs on {config.data_dir}, the default folder: it may not be that of {server}"
        )
        raise CliError(Exit.CONFLICT, text, "name the stores by --data-dir or --config")
    if state is not None and _port(state.server) != _port(server):
        text = f"{config.data_dir} is the folder of the Tarn at {state.server}, not of {server}"
        raise CliError(Exit.CONFLICT, text, "`tarn context` shows where both come from")


def _names_stores(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in _STORES)


def _search(start: Path) -> tuple[Path | None, tuple[Path, ...]]:
    """Returns the nearest folder `.tarn` of this user, and those of others on the way."""
    passed_over: list[Path] = []
    for parent in (start, *start.parents):
        folder = parent / FOLDER
        try:
            if not folder.is_dir():
                continue
            found = folder.stat()
            owners = {folder.lstat().st_uid, found.st_uid}
        except OSError:  # no permission to look
            continue
        if owners == {os.geteuid()} and not found.st_mode & stat.S_IWOTH:
            return folder, tuple(passed_over)
        passed_over.append(folder)
    return None, tuple(passed_over)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was removed
        return Path("/")


def _completed(saved: Settings, path: Path) -> Settings:
    """The settings of a file, with the data folder in which the file is."""
    folder = path.absolute().parent
    if saved.data_dir or saved.config_file or not _is_data_folder(folder):
        return saved
    return replace(saved, data_dir=str(folder))


def _running(data_dir: str) -> Settings:
    """Addresses of the Tarn that runs on a data folder; empty if none does."""
    from tarn_cli.node.data_dir import DataDir

    if not data_dir:
        return Settings()
    try:
        return DataDir(Path(data_dir)).settings()
    except (CliError, OSError):  # damaged, or closed to this user
        return Settings()


def _is_data_folder(folder: Path) -> bool:
    return any((folder / name).exists() for name in _MARKS)


def _default(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / "tarn"


def _port(address: str) -> str:
    return address.rpartition(":")[2]
