"""Translates the URL of `tarn up --kv` to environment variables of the configuration.

    cassandra://host[:port][,host[:port]…][/keyspace]

User, password, TLS and all other settings come from the configuration. Every user of the machine can
read the command line, so it must not contain a password.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from tarn_cli.exits import CliError, Exit

__all__ = ["AS_MANY_AS_NODES", "kv_variables"]

AS_MANY_AS_NODES = 0
"""Replication factor that means one replica per node, at most three."""

_FORM = "cassandra://host[:port][,host[:port]…][/keyspace]"
_PORT = 9042
_SECTION = "TARN_METADATA_DB"


def kv_variables(url: str, replicas: int | None) -> dict[str, str]:
    """Environment variables with the same meaning; none for an empty URL.

    Args:
        url: of the form above, or empty.
        replicas: replicas of a keyspace that has to be created; None: one per node, at most three.

    Raises:
        CliError: USAGE, the URL is not of that form.
    """
    if not url:
        if replicas is not None:
            raise CliError(Exit.USAGE, "--kv-replicas needs --kv, whose keyspace it describes")
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
            "the URL of --kv must not contain a user or a password",
            "set metadata.db.cassandra.username, and TARN_METADATA_DB_CASSANDRA_PASSWORD_FILE",
        )
    if parts.query or parts.fragment or "/" in parts.path.removeprefix("/"):
        raise _wrong(url)
    return parts


def _contact_point(url: str, text: str) -> str:
    """`host:port`; an IPv6 address is in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or not port.isdecimal() or (":" in bare and bare == host):
        raise _wrong(url)
    return f"{host}:{port}"


def _wrong(url: str) -> CliError:
    return CliError(Exit.USAGE, f"--kv {url} is not of the form {_FORM}")
