"""Loads settings from the defaults, the file and the environment, each overriding the one before; and turns a
configuration back into variables of the environment, for a process that this one starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import yaml

from tarn.config.errors import ConfigError
from tarn.config.key_table import KEYS, Key, build
from tarn.config.sections import Config
from tarn.config.setting import FromFile
from tarn.config.values import Secret, described, parse_value, suffix_of

__all__ = ["load", "value_of", "variables_of"]

_FILE_BYTES_MAX = 1 << 20
_BRACKETS_MAX = 200  # PyYAML's time grows with the square of the depth of nesting
_SECRET_FILE_BYTES_MAX = 64 << 10
_PREFIX = "TARN_"
# Other programs also have variables that begin with TARN_ (the command line; Kubernetes creates some for
# every service of that name), so an unknown one is an error only if it is similar to one of ours.
_NEAR = 0.9
_NEAR_NAME = 0.8
_NULL = "tag:yaml.org,2002:null"
_NAMESPACE_PREFIX = re.compile(r"[a-z0-9]+://[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){0,6}/?")


@dataclass(frozen=True, slots=True)
class _Found:
    """The text of a setting and the place where it was found."""

    text: str
    place: str


def load(path: Path | None, env: Mapping[str, str]) -> Config:
    """Loads the configuration from a file, if there is one, and an environment.

    Raises:
        ConfigError: lists every problem: unknown keys with the nearest known one, texts of the wrong kind,
            settings that this version lacks, and settings that contradict each other.
    """
    problems: list[str] = []
    settings: dict[str, _Found] = {}
    if path is not None:
        _take(_of_file(path, problems), settings, problems)
    from_env: dict[str, _Found] = {}
    _take(_of_environment(env, problems), from_env, problems)
    settings |= from_env
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    values = _values(settings, home, problems)
    if not problems:
        problems += _contradictions(values)
    if problems:
        raise ConfigError(problems)
    return build(Config, {key.field: values[key.name] for key in KEYS})


def _by_name() -> dict[str, Key]:
    return {name: key for key in KEYS for name in key.names}


def _take(
    found: Iterator[tuple[str, _Found]], settings: dict[str, _Found], problems: list[str]
) -> None:
    """Collects settings by their own names; a setting given twice in one source is a problem."""
    keys = _by_name()
    for name, setting in found:
        key = keys[name]
        if key.name in settings:
            text = f"{setting.place}: {name} was already given, at {settings[key.name].place}"
            problems.append(text)
        settings[key.name] = setting


def _of_file(path: Path, problems: list[str]) -> Iterator[tuple[str, _Found]]:
    """Yields the known keys of a file; adds the unknown ones to `problems`."""
    try:
        with path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError([f"{path}: is larger than {_FILE_BYTES_MAX} bytes"])
    if data.count(b"[") + data.count(b"{") > _BRACKETS_MAX:
        raise ConfigError([f"{path}: has more than {_BRACKETS_MAX} brackets"])
    try:
        root = yaml.compose(data, Loader=yaml.SafeLoader)
    except RecursionError as error:
        raise ConfigError([f"{path}: is nested too deeply"]) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML raises the last two for an escape beyond Unicode and for a number of 5,000 digits.
        raise ConfigError([f"{path}: is not YAML: {_where(error)}"]) from error
    if root is None or root.tag == _NULL:
        return
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError([f"{path}: must contain sections, such as `logging:`"])
    yield from _of_mapping(root, "", path, problems)


def _where(error: Exception) -> str:
    # PyYAML shows the offending line, which may hold a secret; we only give its number.
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or "unreadable"
    return f"{what} in line {mark.line + 1}" if mark is not None else what


def _of_mapping(
    mapping: yaml.MappingNode, prefix: str, path: Path, problems: list[str]
) -> Iterator[tuple[str, _Found]]:
    keys = _by_name()
    for name_node, node in mapping.value:
        place = f"{path}, line {name_node.start_mark.line + 1}"
        if not isinstance(name_node, yaml.ScalarNode):
            problems.append(f"{place}: a key must be text, not a list or a section")
            continue
        name = prefix + str(name_node.value)
        if name in keys:
            text = _text_of(node)
            if text is None:
                problems.append(f"{place}: {name} must be {described(keys[name].kind)}")
            elif node.tag != _NULL:
                yield name, _Found(text, place)
        elif not any(known.startswith(name + ".") for known in keys):
            problems.append(f"{place}: {_unknown(name)}")
        elif isinstance(node, yaml.MappingNode):
            # Only known sections are entered, so an anchor that refers to itself cannot cause an endless loop.
            yield from _of_mapping(node, name + ".", path, problems)
        elif node.tag != _NULL:
            problems.append(f"{place}: {name} is a section, so it cannot have a value")


def _text_of(node: yaml.Node) -> str | None:
    """The text that was written; for a list, its items joined by commas; None for anything else."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    if items and all(isinstance(item, yaml.ScalarNode) for item in items):
        return ",".join(str(item.value) for item in items)
    return None


def _of_environment(env: Mapping[str, str], problems: list[str]) -> Iterator[tuple[str, _Found]]:
    variables = {_variable(name): name for name in _by_name()}
    files = {key.file_variable: key for key in KEYS if key.from_file is not FromFile.NO}
    for variable in sorted(env):
        if not variable.startswith(_PREFIX):
            continue
        if variable in variables:
            yield variables[variable], _Found(env[variable], variable)
        elif variable in files:
            yield from _of_secret_file(files[variable], Path(env[variable]), problems)
        elif near := difflib.get_close_matches(variable, variables, 1, _NEAR):
            problems.append(f"{variable}: is unknown; did you mean {near[0]}?")


def _variable(name: str) -> str:
    return _PREFIX + name.upper().replace(".", "_")


def _of_secret_file(key: Key, path: Path, problems: list[str]) -> Iterator[tuple[str, _Found]]:
    try:
        with path.open("rb") as file:
            text = file.read(_SECRET_FILE_BYTES_MAX).decode().strip()
    except FileNotFoundError:
        if key.from_file is FromFile.REQUIRED or not path.parent.is_dir():
            problems.append(f"{key.file_variable}: {path} does not exist")
        return
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        problems.append(f"{key.file_variable}: {path} cannot be read: {reason}")
        return
    if text:
        yield key.name, _Found(text, f"{key.file_variable} ({path})")
    else:
        problems.append(f"{key.file_variable} ({path}) is empty")


def _values(settings: Mapping[str, _Found], home: Path, problems: list[str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key in KEYS:
        setting = settings.get(key.name)
        if setting is None:
            default = key.default
            values[key.name] = None if default is None else parse_value(key.kind, default, home)
            continue
        try:
            values[key.name] = parse_value(key.kind, setting.text, home)
        except ValueError as error:
            problems.append(f"{setting.place}: {key.name} {error}")
    data_dir = values.get("data_dir")
    if isinstance(data_dir, Path):
        for key in KEYS:
            if key.folder:
                values[key.name] = values.get(key.name) or data_dir / key.folder
    return values


def _contradictions(values: Mapping[str, object]) -> Iterator[str]:
    for parts in (
        ("gateways.s3.tls.cert", "gateways.s3.tls.key"),
        ("api.tls.cert", "api.tls.key"),
        ("rpc.tls.ca", "rpc.tls.cert", "rpc.tls.key"),
        ("metadata.db.cassandra.username", "metadata.db.cassandra.password"),
        ("metadata.db.cassandra.tls.cert", "metadata.db.cassandra.tls.key"),
        (
            "blockstore.s3.credentials.access_key_id",
            "blockstore.s3.credentials.access_secret_key",
        ),
    ):
        missing = [name for name in parts if values[name] is None]
        if missing and len(missing) < len(parts):
            yield f"{missing[0]} is missing: {', '.join(parts)} are set together or not at all"
    if values["backup.interval"] and values["backup.place"] is None:
        yield "backup.place is missing: backup.interval is set, so name a folder or s3://BUCKET/PREFIX"
    prefix = values["blockstore.default_namespace_prefix"]
    scheme = f"{values['blockstore.type']}://"
    if prefix is None:
        if scheme == "s3://":
            yield "blockstore.default_namespace_prefix is missing: blockstore.type s3 needs s3://<bucket>/<prefix>"
    elif not _NAMESPACE_PREFIX.fullmatch(str(prefix)) or not str(prefix).startswith(scheme):
        yield f"blockstore.default_namespace_prefix must be {scheme}<name>/<name>, not {prefix!r}"


def _unknown(name: str) -> str:
    names = list(_by_name())
    sections = {known[:at] for known in names for at, letter in enumerate(known) if letter == "."}
    near = difflib.get_close_matches(name, [*names, *sorted(sections)], 1, _NEAR_NAME)
    # Finds a right name in a wrong section, by its last part.
    near += [known for known in names if known.endswith("." + name.rpartition(".")[2])]
    return f"{name} is unknown" + (f"; did you mean {near[0]}?" if near else "")


def variables_of(config: Config) -> dict[str, str]:
    """Returns every setting that has a value, by the name of its environment variable: `load` undone.

    A process passes its settings in this form to a process that it starts. The file may have changed since
    this process read it, and a helper process that read it again could use another store than its parent.
    `load(None, variables_of(config))` gives an equal configuration.

    Reveals secrets: send the result through a private pipe only, never put it into an environment, a file or
    a log.
    """
    settings = ((key, value_of(config, key)) for key in KEYS)
    return {key.variable: _written(key, value) for key, value in settings if value is not None}


def value_of(config: Config, key: Key) -> object:
    """Returns the value of a key; None if it has none."""
    found: object = config
    for part in key.field.split("."):
        found = getattr(found, part)
    return found


def _written(key: Key, value: object) -> str:
    match value:
        case Secret():
            return value.reveal()
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value}ms" if suffix_of(key.kind) == "_ms" else str(value)
        case float():
            return format(Decimal(value), "f")  # every digit, so that parsing gives the same number
        case tuple():
            return ",".join(value)
        case str() | Path():
            return str(value)
        case _:
            raise TypeError(f"{key.name} holds a {type(value).__name__}")
