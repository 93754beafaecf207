"""Pages of a listing by its layers alone, as the merge makes them where nothing may be leapt over."""

from __future__ import annotations

from collections.abc import Generator

from tarn.core.listing.newest import PathRows
from tarn.core.listing.pages import (
    MayLeap,
    NeedRows,
    Page,
    PageRequest,
    leaping_page,
)

__all__ = ["merge_page"]


def merge_page(
    request: PageRequest, staged_count: int, *, with_base: bool
) -> Generator[NeedRows, PathRows, Page]:
    """Builds one page by reading the layers only: `leaping_page` without leaps."""
    merge = leaping_page(request, staged_count, with_base=with_base)
    try:
        wish = next(merge)
        while True:
            wish = merge.send(None if isinstance(wish, MayLeap) else (yield wish))
    except StopIteration as done:
        page: Page = done.value
        return page
