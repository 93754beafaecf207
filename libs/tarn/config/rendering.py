"""A configuration as text again: how a process hands its own settings to one that it starts.

The file that a service was started with may have changed since. A helper process that read it again
could work on another store than its parent, so it is told instead: `load(None, variables_of(config))`
gives an equal configuration.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from tarn.config.keys import KEYS, Key
from tarn.config.sections import Config
from tarn.config.values import Secret, suffix_of

__all__ = ["variables_of"]


def variables_of(config: Config) -> dict[str, str]:
    """Every setting that has a value, by its environment variable. Secrets are revealed: this goes
    through a private pipe, never into an environment, a file or a log."""
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
            return format(Decimal(value), "f")  # every digit: exactly the same number again
        case tuple():
            return ",".join(value)
        case str() | Path():
            return str(value)
        case _:
            raise TypeError(f"{key.name} holds a {type(value).__name__}")
