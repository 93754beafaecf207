"""The store of a `tarn kv` command: given as a configuration file or a URL.

    tarn.yaml
    embedded:///srv/tarn/kv[?installation=ID]
    cassandra://host[:port][,…][/keyspace][?installation=ID&datacenter=DC&replicas=N]

The URL of the embedded store names the folder that holds `tarn.db`. User, password and TLS come from the
environment variables of the configuration (`TARN_METADATA_DB_CASSANDRA_…`), because a URL must not
contain a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tarn.config import Config, ConfigError, installation_secret
from tarn_cli.exits import CliError, Exit
from tarn_cli.node.kv_url import kv_variables
from tarn_cli.node.plan import read_config

__all__ = ["about", "check_apart", "config_of", "secret_of"]

_QUERY = {
    "installation": "TARN_INSTALLATION_ID",
    "datacenter": "TARN_METADATA_DB_CASSANDRA_LOCAL_DATACENTER",
    "replicas": "TARN_METADATA_DB_CASSANDRA_REPLICATION_FACTOR",
}
_FILE = "tarn.db"


def config_of(where: str, environment: Mapping[str, str]) -> Config:
    """The configuration for a file or a URL.

    Raises:
        CliError: USAGE, `where` is neither a file nor a URL of a store; NOT_FOUND, there is no such file.
    """
    if "://" not in where:
        path = Path(where)
        if not path.is_file():
            hint = "give a configuration file, cassandra://HOST/KEYSPACE or embedded:///FOLDER"
            raise CliError(Exit.NOT_FOUND, f"no such configuration file: {where}", hint)
        return read_config(path, environment)
    url, _, query = where.partition("?")
    variables = _store_variables(url) | _query_variables(where, query)
    return read_config(None, {**environment, **variables})


def about(config: Config) -> str:
    """The URL of the store, for people; without secrets."""
    db = config.metadata.db
    if db.type == "embedded":
        return f"embedded://{db.embedded.path.absolute()}"
    return f"cassandra://{','.join(db.cassandra.contact_points)}/{db.cassandra.keyspace}"


def check_apart(source: Config, target: Config) -> None:
    """Checks that source and target differ; `TARN_…` variables may make them equal.

    Raises:
        CliError: USAGE, both are the same store.
    """
    if about(source) == about(target):
        text = f"source and target are the same store, {about(source)}"
        hint = "environment variables TARN_METADATA_DB_… override the configuration files"
        raise CliError(Exit.USAGE, text, hint)


def secret_of(config: Config) -> bytes | None:
    """The installation's secret, if the configuration or the data folder has one."""
    try:
        return installation_secret(config, make=(config.data_dir / "secret").exists())
    except ConfigError:
        return None


def _store_variables(url: str) -> dict[str, str]:
    if url.startswith("cassandra://"):
        return kv_variables(url, None)
    parts = urlsplit(url)
    if parts.scheme != "embedded" or parts.netloc or not parts.path.strip("/"):
        text = f"{url} is neither embedded:///FOLDER nor cassandra://HOST[:PORT][,…][/KEYSPACE]"
        raise CliError(Exit.USAGE, text)
    folder = Path(unquote(parts.path))
    if not (folder / _FILE).exists() and (folder / "kv" / _FILE).exists():
        raise CliError(Exit.USAGE, f"{folder} is a data folder", f"use embedded://{folder / 'kv'}")
    return {"TARN_METADATA_DB_TYPE": "embedded", "TARN_METADATA_DB_EMBEDDED_PATH": str(folder)}


def _query_variables(where: str, query: str) -> dict[str, str]:
    try:
        found = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        return {_QUERY[name]: value for name, value in found.items()}
    except (KeyError, ValueError):
        text = f"the query of {where} is invalid; known parameters: {', '.join(_QUERY)}"
        raise CliError(Exit.USAGE, text) from None
