"""Keeps pandas out of a process that never uses it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["leave_out_pandas"]


class _Refusal:
    """A finder of modules that finds all but pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """See `importlib.abc.MetaPathFinder`; None leaves the module to the next finder."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is left out of services", name=fullname)


def leave_out_pandas() -> None:
    """Makes `import pandas` fail in this process, unless it is imported already.

    pyarrow imports pandas, if it is installed, when it makes its first array of a Python list. In a service that stops
    the event loop for half a second, at the first commit or listing, and takes 40 MB.
    """
    sys.meta_path.insert(0, _Refusal())
