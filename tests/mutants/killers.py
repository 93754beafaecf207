"""Which test killed which mutation, as `make mutate ARGS=--record` found it: what CI samples from.

A written mutation that has no killer here was never seen by a test. Entries of code that is gone are
harmless; they leave the record when it is made anew.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

__all__ = ["record", "recorded"]

_PLACE: Final = Path(__file__).with_name("killers.json")


def recorded() -> dict[str, str]:
    """For each mutation the test that killed it."""
    if not _PLACE.exists():
        return {}
    found: dict[str, str] = json.loads(_PLACE.read_text())
    return found


def record(killers: Mapping[str, str], tried: Collection[str], known: Collection[str]) -> None:
    """Writes what was found for the mutations that were tried; keeps others that are still known."""
    kept = {name: test for name, test in recorded().items() if name in known and name not in tried}
    found = kept | {name: test for name, test in killers.items() if "::" in test}
    text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
    _PLACE.write_text(text + "\n")
