"""Which store a `tarn kv` command means: a configuration file, or a URL.

    tarn.yaml
    embedded:///srv/tarn/kv[?installation=ID]
    cassandra://host[:port][,…][/keyspace][?installation=ID&datacenter=DC&replicas=N]

The URL of the embedded store names the folder that holds `tarn.db`. Who logs in and TLS come from the
configuration's environment (`TARN_METADATA_DB_CASSANDRA_…`): a URL has no place for a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from tarn.config import Config, ConfigError, installation_secret
from tarn_cli.exits import CliError, Exit
from tarn_cli.kv_url import kv_variables
from tarn_cli.node_plan import read_config

__all__ = ["about", "check_apart", "config_of", "secret_of"]

_QUERY = {
    "installation": "TARN_INSTALLATION_ID",
    "datacenter": "TARN_METADATA_DB_CASSANDRA_LOCAL_DATACENTER",
    "replicas": "TARN_METADATA_DB_CASSANDRA_REPLICATION_FACTOR",
}
_FILE = "tarn.db"


def config_of(where: str, environment: Mapping[str, str]) -> Config:
    """The configuration that a file or a URL stands for.

    Raises:
        CliError: USAGE, it is neither; NOT_FOUND, there is no such file.
    """
    if "://" not in where:
        path = Path(where)
        if not path.is_file():
            hint = "a configuration file, cassandra://HOST/KEYSPACE or embedded:///FOLDER"
            raise CliError(Exit.NOT_FOUND, f"no such configuration file: {where}", hint)
        return read_config(path, environment)
    url, _, query = where.partition("?")
    variables = _store_variables(url) | _query_variables(where, query)
    return read_config(None, {**environment, **variables})


def about(config: Config) -> str:
    """Where the store is, for people; no secrets."""
    db = config.metadata.db
    if db.type == "embedded":
        return f"embedded://{db.embedded.path.absolute()}"
    return f"cassandra://{','.join(db.cassandra.contact_points)}/{db.cassandra.keyspace}"


def check_apart(source: Config, target: Config) -> None:
    """Raises `CliError` USAGE if both mean the same store, as `TARN_…` variables would make them."""
    if about(source) == about(target):
        text = f"source and target are the same store, {about(source)}"
        hint = "variables TARN_METADATA_DB_… beat the configuration files"
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
        raise CliError(Exit.USAGE, f"{folder} is a data folder", f"say embedded://{folder / 'kv'}")
    return {"TARN_METADATA_DB_TYPE": "embedded", "TARN_METADATA_DB_EMBEDDED_PATH": str(folder)}


def _query_variables(where: str, query: str) -> dict[str, str]:
    try:
        found = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        return {_QUERY[name]: value for name, value in found.items()}
    except (KeyError, ValueError):
        text = f"{where} asks for something else than {', '.join(_QUERY)}"
        raise CliError(Exit.USAGE, text) from None
