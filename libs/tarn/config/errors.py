"""The error for an invalid configuration; it reports all problems together."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["ConfigError"]


class ConfigError(TarnError):
    """One line for each problem, with its place; never contains the value of a secret."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(Kind.INVALID, Reason.INVALID_ARGUMENT, "\n".join(problems))
        self.problems = tuple(problems)
