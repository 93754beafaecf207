"""Mutations that change no behaviour anybody can see, each with the reason."""

from collections.abc import Mapping
from typing import Final

__all__ = ["EQUIVALENT"]

EQUIVALENT: Final[Mapping[str, str]] = {
    "tarn.core.listing:merge_page: other call: max((layer.paths[-1] for layer in live))"
    " -> min((layer.paths[-1] for layer in live))": (
        "all layers are exhausted: the rows are merged in several rounds in the place of one"
    ),
}
