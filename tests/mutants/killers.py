"""Records which test killed which mutation (`make mutate-source ARGS=--record`); CI plays a sample of them.

A written mutation without a killer was never killed by a test. Entries of removed code are harmless; the next
recording removes them.
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final

__all__ = ["record", "recorded"]

_PLACE: Final = Path(__file__).with_name("killers.json")


def recorded() -> dict[str, str]:
    """Returns for each mutation the test that killed it, or a description: a limit, or a failed import."""
    if not _PLACE.exists():
        return {}
    found: dict[str, str] = json.loads(_PLACE.read_text())
    return found


def record(mutation: str, test: str, known: Collection[str]) -> None:
    """Records which test killed a mutation, or "" for none; keeps the entries of other known mutations."""
    found = {name: by for name, by in recorded().items() if name in known and name != mutation}
    if test:
        found[mutation] = test
    text = json.dumps(dict(sorted(found.items())), indent=1, ensure_ascii=False)
    _PLACE.write_text(text + "\n")
