"""Uncommitted changes beside a page of a listing: which rows have them, and which rows only they have.

The changes of a page's keys are read, and no more: a folder is skipped once one change below it is known. So a page
costs a bounded number of calls, however many changes there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tarn.core.errors import Kind, TarnError
from tarn_api.context import Context
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["FOLDER", "Marks", "marks_of"]

FOLDER: Final = "changes inside"
_WORDS: Final = {
    pb.DIFF_KIND_ADDED: "added",
    pb.DIFF_KIND_CHANGED: "changed",
    pb.DIFF_KIND_REMOVED: "deleted",
}
_CALLS_MAX: Final = 30
_PATHS: Final = 200
_LAST: Final = "\U0010ffff"


@dataclass(slots=True)
class Marks:
    """Marks of a page.

    Attributes:
        by_path: the mark of each path and folder that has changes.
        end: the path up to which they are known; None: of the whole page.
        is_hidden: whether the caller may see the listing, but not what is uncommitted.
    """

    by_path: dict[str, str] = field(default_factory=dict)
    end: str | None = None
    is_hidden: bool = False


async def marks_of(
    context: Context, repository: str, branch: str, prefix: str, after: str, last: str
) -> Marks:
    """Returns the marks of a page of a folder.

    Args:
        context: of the request.
        repository: the repository.
        branch: the branch.
        prefix: of the listing; folders end with the first slash behind it.
        after: where the page begins.
        last: the last row of the page; empty: the listing ends with this page.
    """
    marks, token = Marks(), ""
    place = after + _LAST if after.endswith("/") else after
    for _ in range(_CALLS_MAX):
        try:
            page = await context.graveler.diff_uncommitted(
                context.read(),
                repository,
                branch,
                prefix=prefix,
                after=place,
                page_size=_PATHS,
                page_token=token,
                names_only=True,
            )
        except TarnError as error:
            if error.kind is not Kind.DENIED:
                raise
            return Marks(is_hidden=True)
        skipped = ""
        for path, kind in zip(page.paths, page.kinds, strict=True):
            if skipped and path.startswith(skipped):
                continue
            end = path.find("/", len(prefix)) + 1
            row = path[:end] if end else path
            if last and row > last:
                return marks
            marks.by_path[row] = FOLDER if end else _WORDS.get(kind, "changed")
            skipped = path[:end]
        if not page.next_page_token:
            return marks
        token = "" if page.paths else page.next_page_token
        if page.paths:
            # The rest of the folder that the page ended in needs no look.
            place = skipped + _LAST if skipped else page.paths[-1]
        if last and place > last:
            return marks
    marks.end = place.removesuffix(_LAST)
    return marks
