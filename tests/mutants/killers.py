"""Which test killed which mutation, as `make mutate ARGS=--record` found it: what CI samples from.

A written mutation that has no killer here was never seen by a test. Entries of code that is gone are
harmless; they leave the record when it is made anew.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

__all__ = ["record", "recorded"]

_PLACE: Final = Path(__file__).with_name("killers.json")


def recorded() -> dict[str, str]:
    """For each mutation the test that killed it, or in words what did: a limit, or a failed import."""
    if not _PLACE.exists():
        return {}
    found: dict[str, str] = json.loads(_PLACE.read_text())
    return found


def record(mutation: str, test: str, known: Collection[str]) -> None:
    """Writes which test killed a mutation, or "" for none; keeps others that are still known."""
    found = {name: by for name, by in recorded().items() if name in known and name != mutation}
    if test:
        found[mutation] = test
    text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
    _PLACE.write_text(text + "\n")
