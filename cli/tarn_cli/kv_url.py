"""The metadata store that `tarn up --kv` names, as the variables of its configuration.

    cassandra://host[:port][,host[:port]…][/keyspace]

Who logs in, TLS and everything else comes from the configuration; a password has no place in a command
line that every user of the machine can read.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from tarn_cli.exits import CliError, Exit

__all__ = ["AS_MANY_AS_NODES", "kv_variables"]

AS_MANY_AS_NODES = 0
"""A replication factor: one copy on each node, at most three."""

_FORM = "cassandra://host[:port][,host[:port]…][/keyspace]"
_PORT = 9042
_SECTION = "TARN_METADATA_DB"


def kv_variables(url: str, replicas: int | None) -> dict[str, str]:
    """Environment variables that say the same; none for an empty URL.

    Args:
        url: see above.
        replicas: of the keyspace if it has to be made; None: as many as there are nodes.

    Raises:
        CliError: USAGE, it is no such URL.
    """
    if not url:
        if replicas is not None:
            raise CliError(Exit.USAGE, "--kv-replicas says how --kv makes its keyspace: give both")
        return {}
    parts = _split(url)
    keyspace = parts.path.removeprefix("/")
    variables = {
        f"{_SECTION}_TYPE": "cassandra",
        f"{_SECTION}_CASSANDRA_CONTACT_POINTS": ",".join(
            _contact_point(url, host) for host in parts.netloc.split(",")
        ),
        f"{_SECTION}_CASSANDRA_REPLICATION_FACTOR": str(
            AS_MANY_AS_NODES if replicas is None else replicas
        ),
    }
    if keyspace:
        variables[f"{_SECTION}_CASSANDRA_KEYSPACE"] = keyspace
    return variables


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that do not match
        raise _wrong(url) from None
    if parts.scheme != "cassandra" or not parts.netloc:
        raise _wrong(url)
    if "@" in parts.netloc:
        # Not shown: it holds a password.
        raise CliError(
            Exit.USAGE,
            "--kv takes no user and no password",
            "set metadata.db.cassandra.username, and TARN_METADATA_DB_CASSANDRA_PASSWORD_FILE",
        )
    if parts.query or parts.fragment or "/" in parts.path.removeprefix("/"):
        raise _wrong(url)
    return parts


def _contact_point(url: str, text: str) -> str:
    """`host:port`; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or not port.isdecimal() or (":" in bare and bare == host):
        raise _wrong(url)
    return f"{host}:{port}"


def _wrong(url: str) -> CliError:
    return CliError(Exit.USAGE, f"--kv {url} is not of the form {_FORM}")
