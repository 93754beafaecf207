"""Which test killed which mutation, as `make mutate ARGS=--record` found it: what CI samples from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["record", "recorded"]

_PLACE: Final = Path(__file__).with_name("killers.json")


def recorded() -> dict[str, str]:
    """For each mutation the test that killed it."""
    found: dict[str, str] = json.loads(_PLACE.read_text())
    return found


def record(killers: Mapping[str, str]) -> None:
    """Writes the record anew; mutations by their names."""
    named = {name: test for name, test in sorted(killers.items()) if "::" in test}
    _PLACE.write_text(json.dumps(named, indent=1, ensure_ascii=False) + "\n")
