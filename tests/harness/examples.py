"""How many examples a property gets that takes long for each."""

from hypothesis import settings

__all__ = ["FEWER"]

FEWER = settings(max_examples=max(10, settings().max_examples * 2 // 5))
"""Two fifths of those of the profile, for properties that write and read files for each example."""
