"""Guards that only stories switch off."""

from collections.abc import Sequence

from tests.support.faults.guards import Guard, Weakening

from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.records.branches import BranchVersion

__all__ = ["STORY_GUARDS"]


def _of_any_life(self: BranchHandle, version: BranchVersion) -> BranchVersion:
    """Goes on with a later branch of the same name."""
    del self
    return version


STORY_GUARDS: Sequence[Guard] = (
    Guard(
        "one-life",
        "1",
        "I0",
        "a write goes on with a later branch of the same name",
        (Weakening(BranchHandle, "_check", _of_any_life),),
    ),
)
