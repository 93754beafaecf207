"""Turns a configuration back into text, for a process that hands its settings to a process that it starts.

The file may have changed since the service was started. A helper process that read the file again could use
another store than its parent. So the parent passes its settings as variables:
`load(None, variables_of(config))` gives an equal configuration.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from tarn.config.keys import KEYS, Key
from tarn.config.sections import Config
from tarn.config.values import Secret, suffix_of

__all__ = ["variables_of"]


def variables_of(config: Config) -> dict[str, str]:
    """Returns every setting that has a value, by the name of its environment variable. Reveals secrets: send
    the result through a private pipe only, never put it into an environment, a file or a log."""
    settings = ((key, _value(config, key)) for key in KEYS)
    return {key.variable: _text(key, value) for key, value in settings if value is not None}


def _value(config: Config, key: Key) -> object:
    found: object = config
    for part in key.field.split("."):
        found = getattr(found, part)
    return found


def _text(key: Key, value: object) -> str:
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
