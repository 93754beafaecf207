"""Mutations that somebody wrote down."""

from collections.abc import Sequence
from typing import Final

from tests.mutants.applying import Written

__all__ = ["WRITTEN"]

WRITTEN: Final[Sequence[Written]] = ()
