"""Ranges of refs on the command line: `lake/A..B` and `lake/A...B`, as in git.

`A..B` stands for the way from A to B, `A...B` for the way from the merge base of both to B. A branch or tag whose own
name contains `..` cannot be part of a range; its commit id can.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tarn.core.ids import RepositoryId
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import RefUri, parse_ref, parse_ref_of

__all__ = ["RefRange", "parse_range", "parse_range_of"]

_RANGE = re.compile(r"(?P<left>.*?)(?P<dots>\.{2,3})(?!\.)(?P<right>.*)")


@dataclass(frozen=True, slots=True)
class RefRange:
    """Two refs of one repository.

    Attributes:
        left: the ref before the dots.
        right: the ref after them.
        from_merge_base: three dots.
    """

    left: RefUri
    right: RefUri
    from_merge_base: bool


def parse_range(text: str) -> RefRange | None:
    """Parses `lake/A..B`, `lake/A...B`, and both with `lake/` before B; None for a text without dots.

    Raises:
        CliError: USAGE: a side is missing, or the sides belong to different repositories.
        TarnError: INVALID, a name that no repository can have.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    if not found["left"].rpartition("/")[2] or not found["right"]:
        raise CliError(
            Exit.USAGE, f"{text!r} lacks a ref on one side", "expected e.g. lake/v1..main"
        )
    left = parse_ref(found["left"])
    right = RefUri(left.repository, parse_ref_of(found["right"], left.repository))
    return RefRange(left, right, len(found["dots"]) == 3)


def parse_range_of(text: str, repository: RepositoryId) -> tuple[str, str] | None:
    """Parses the range `A..B` of a known repository, with or without `lake/` before A and B.

    Returns both refs; None for a text without dots.

    Raises:
        CliError: USAGE: a side is missing, there are three dots, or a side belongs to another repository.
        TarnError: INVALID, a name that no repository can have.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    if not found["left"] or not found["right"] or len(found["dots"]) != 2:
        raise CliError(Exit.USAGE, f"{text!r} is not a range of two refs", "expected e.g. v1..main")
    return parse_ref_of(found["left"], repository), parse_ref_of(found["right"], repository)
