"""How many files a process may open: raised at its start as far as the system lets it.

Each connection, each body being stored and each store takes descriptors. Many systems start a process with a soft limit
of 1,024, which a few hundred clients use up, and with a hard limit far above it, up to which it may raise its own.
"""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["OPEN_FILES_MAX", "attainable_open_files", "raise_open_files"]

OPEN_FILES_MAX: Final = 65_536
"""The limit is not raised beyond this: it is six times the default of `limits.connections`. Some
systems have a hard limit of a billion, and libraries that close or count all possible descriptors then take minutes."""


def attainable_open_files() -> int:
    """Returns the soft limit that a process with the limits of this one has after its start."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard):
        # `RLIM_INFINITY` is -1, or the greatest number.
        hard = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else hard
        soft = OPEN_FILES_MAX if soft == resource.RLIM_INFINITY else soft
    return max(soft, min(hard, OPEN_FILES_MAX))


def raise_open_files() -> int:
    """Raises the soft limit of this process and of those that it starts; returns the limit that it has then.

    A system that refuses leaves the limit as it is: the process runs, with fewer connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = attainable_open_files()
    if soft != resource.RLIM_INFINITY and wanted > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return soft
    return wanted
