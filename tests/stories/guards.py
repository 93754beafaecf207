"""Guards that only stories switch off."""

from collections.abc import Sequence

from tarn.testing.faults.guards import Guard

__all__ = ["STORY_GUARDS"]

STORY_GUARDS: Sequence[Guard] = ()
