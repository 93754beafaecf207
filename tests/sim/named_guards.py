"""The guards of graveler's protocol by their names, for tests that switch one off."""

from __future__ import annotations

from typing import Final

from tests.sim.lake_guards import GUARDS
from tests.sim.rare_guards import RARE_GUARDS
from tests.support.faults.guards import Guard

__all__ = ["GUARD"]

GUARD: Final[dict[str, Guard]] = {guard.name: guard for guard in (*GUARDS, *RARE_GUARDS)}
