"""The difference of one path between two refs, as texts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from msgspec import Struct

from tarn.core.entry import Entry, unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.printable import printable
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.web.differences import LINES_MAX, TextDifference, difference_of
from tarn_api.web.page import Crumb, Page, render
from tarn_api.web.pages.objects import ObjectAt, read_begin
from tarn_api.web.place import way_to
from tarn_api.web.previews import PREVIEW_BYTES_MAX

__all__ = ["DifferenceAt", "difference"]


class DifferenceAt(Struct, kw_only=True):
    """A path, from the left ref to the right one."""

    repository: str
    left: str
    right: str
    path: str


@dataclass(frozen=True, slots=True)
class _Side:
    """An object of one ref.

    Attributes:
        entry: None: the ref has no such path.
        begin: its first bytes; None if they are no text that can be compared.
    """

    entry: Entry | None
    begin: bytes | None

    @property
    def is_cut(self) -> bool:
        """Whether there are more bytes."""
        begin = self.begin or b""
        return self.entry is not None and len(begin) < self.entry.size


async def difference(context: Context, at: DifferenceAt) -> Page:
    """What differs in an object between two refs, line by line."""
    left, right = [await _side(context, at, ref) for ref in (at.left, at.right)]
    if left.entry is None and right.entry is None:
        text = f"neither {at.left} nor {at.right} has an object {at.path}"
        raise ApiError(404, printable(text), reason=Reason.ENTRY_NOT_FOUND.value)
    found: TextDifference | None = None
    if left.begin is not None and right.begin is not None:
        work = partial(
            difference_of,
            left.begin,
            right.begin,
            is_before_cut=left.is_cut,
            is_after_cut=right.is_cut,
        )
        # In a thread: it takes the longer, the more lines are alike.
        found = await asyncio.to_thread(work)
    return render(
        context,
        "difference.html",
        title=f"Difference of {at.path}",
        crumbs=[*way_to(at.repository), Crumb("Difference")],
        at=at,
        left=left.entry,
        right=right.entry,
        found=found,
        bytes_max=PREVIEW_BYTES_MAX,
        lines_max=LINES_MAX,
    )


async def _side(context: Context, at: DifferenceAt, ref: str) -> _Side:
    try:
        found = await context.graveler.lookup(context.read(), at.repository, ref, at.path)
    except TarnError as error:
        if error.reason is not Reason.ENTRY_NOT_FOUND:
            raise
        return _Side(None, b"")
    entry = unpack(found.entry)
    if entry.external_address or entry.content_encoding:
        return _Side(entry, None)
    place = ObjectAt(repository=at.repository, ref=ref, path=at.path)
    begin = await read_begin(context, place, entry, found.storage_namespace, PREVIEW_BYTES_MAX)
    return _Side(entry, begin)
