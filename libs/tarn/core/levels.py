"""Feature levels: which releases may use an installation together (docs/design/upgrades.md).

A store has a level. A release supports a span of levels and writes only what every release of the store's level can
read and keeps. So replicas of two releases can run side by side, and an upgrade can be undone, until an operator
raises the level (`tarn upgrade finish`).

A new field of a record, or a new kind of row, is written only if a `FeatureGate` allows its `Feature`. Reading needs
no gate.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "ALL_FEATURES",
    "LEVEL_FIRST",
    "LEVEL_MAX",
    "LEVEL_MIN",
    "Feature",
    "FeatureGate",
    "StoreLevel",
    "unsupported",
]

LEVEL_FIRST: Final = 1
"""The level of a store that records none: release 0.9.0 wrote it."""
LEVEL_MIN: Final = 1
"""The lowest level at which this release runs."""
LEVEL_MAX: Final = 2
"""The highest level that this release knows; that of a new installation."""


class Feature(enum.Enum):
    """A format or a check that begins at a level.

    Attributes:
        level: from which replicas may use it.
        text: its name in errors.
    """

    NEW_FIELDS = (2, "records with fields that release 0.9.0 does not know")
    """Release 0.9.0 removes a field that it does not know from each record that it changes."""
    BUCKET_VIEWS = (2, "bucket views")
    """Release 0.9.0 would take the row of one for that of a repository."""
    SESSION_KEYS = (2, "session keys")
    """Release 0.9.0 does not know their records, so that a rotation of the installation's secret would lose them."""
    WEB_SESSIONS = (2, "sessions of browsers")
    """Release 0.9.0 would save their records in backups, and a restore would bring back those that were ended."""
    ISSUED_ADDRESSES = (2, "refusals of addresses that no gateway made")
    """Gateways of release 0.9.0 do not prove who they are, so that whatever they stage has to be taken."""

    CONDITIONAL_DELETES = (2, "conditional deletes")
    """Release 0.9.0 takes the tombstone of one, which names its operation, for a damaged row."""

    OBJECT_TAGS = (2, "object tags")
    """Release 0.9.0 does not see them, and loses them when it copies an object."""

    RETENTION_EXCEPTIONS = (2, "retention rules with exceptions")
    """Release 0.9.0 knows no retention. A build that does not know exceptions takes the settings for damaged."""

    COPIED_LINKS = (2, "addresses whose objects are copied when they are linked")
    """Release 0.9.0 would link the address to which its client can still write, and its roots lack the copy."""

    PULL_REQUESTS = (2, "pull requests and rules for them")
    """Release 0.9.0 would report their partition as an orphan, and leave it in the store with a deleted repository."""

    JOURNAL = (2, "events of the journal")
    """Release 0.9.0 writes none, so that a rebuild would miss its writes, and knows no companions of rows."""

    REQUEST_COUNTS = (2, "counts of requests")
    """Release 0.9.0 would report their partition as an orphan."""

    def __init__(self, level: int, text: str) -> None:
        self.level = level
        self.text = text


@dataclass(frozen=True, slots=True)
class StoreLevel:
    """The level of a store.

    Attributes:
        level: features up to this level may be written.
        next_level: a greater number while the level is being raised. A release that does not support it stops, before
            any process writes at it. Invariant: at least `level`.
    """

    level: int = LEVEL_FIRST
    next_level: int = LEVEL_FIRST


def unsupported(found: StoreLevel, installation_id: str) -> str:
    """Returns why this release must not use a store of this level; empty if it may."""
    needed = max(found.level, found.next_level)
    if needed > LEVEL_MAX:
        return (
            f"installation {installation_id!r} is at feature level {needed}, and this release supports at most "
            f"{LEVEL_MAX}: it is too old. Run the release that raised the level, or a later one"
        )
    if found.level < LEVEL_MIN:
        return (
            f"installation {installation_id!r} is at feature level {found.level}, and this release supports "
            f"{LEVEL_MIN} and later: it is too new. Run the release before it and `tarn upgrade finish` first"
        )
    return ""


class FeatureGate:
    """Refuses to write what replicas of the last release could damage.

    Args:
        level: returns the level of the store, which may be raised while the process runs.
    """

    def __init__(self, level: Callable[[], int]) -> None:
        self._level = level

    @classmethod
    def at(cls, level: int) -> FeatureGate:
        """Returns the gate of a store whose level stays the same."""
        return cls(lambda: level)

    def allows(self, feature: Feature) -> bool:
        """Whether the level of the store allows the feature."""
        return self._level() >= feature.level

    def require(self, feature: Feature) -> None:
        """Refuses a feature that the level of the store does not allow yet.

        Raises:
            TarnError: FAILED_PRECONDITION, FEATURE_LEVEL: the store's level is lower than the feature's.
        """
        level = self._level()
        if level < feature.level:
            text = (
                f"{feature.text} need feature level {feature.level}; the installation is at {level}, so that the last "
                "release can run beside this one. When no replica of it runs any more, `tarn upgrade finish` raises it"
            )
            metadata = {"level": str(level), "needed": str(feature.level)}
            raise TarnError(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, text, **metadata)


ALL_FEATURES: Final = FeatureGate.at(LEVEL_MAX)
"""The gate of a new installation: allows every feature."""
