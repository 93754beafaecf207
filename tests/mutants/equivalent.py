"""Mutations that change no behaviour anybody can see, each with the reason."""

from collections.abc import Mapping
from typing import Final

__all__ = ["EQUIVALENT"]

EQUIVALENT: Final[Mapping[str, str]] = {}
