"""What plays beside the clients in the runs of the simulator (docs/design/simulation.md)."""

from __future__ import annotations

import enum

__all__ = ["Mode"]


class Mode(enum.Enum):
    """A kind of runs. The value is the option of `python -m tests.sim`."""

    DRAWN = ""
    """The choice of the seed's plan: compactors in some plans, no collectors."""
    COMPACT = "compact"
    """Compactors in every plan."""
    COLLECT = "collect"
    """Garbage collections."""
    ONLINE = "online"
    """Garbage collections and online deletion."""
    EXPIRE = "expire"
    """Garbage collections and retention rules."""
    ERASE = "erase"
    """Garbage collections and erasures."""
    DELETES = "deletes"
    """Conditional deletes."""
    VIEWS = "views"
    """Bucket views that are pointed elsewhere."""
    SESSIONS = "sessions"
    """Session keys, beside bucket views that are pointed elsewhere."""

    @property
    def option(self) -> str:
        """The option of `python -m tests.sim`; empty for runs as they are drawn."""
        return f"--{self.value}" if self.value else ""
