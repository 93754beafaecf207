"""Lists the refs of a repository as the top level of its bucket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["branch_roots", "ref_roots", "within"]

_PAGE = 1000


async def branch_roots(backend: Backend, request: S3Request, call: Call, prefix: str) -> list[str]:
    """Returns `<branch>/` of every branch whose name begins with `prefix`, in the order of keys.

    This is not the order of names: `main-2/…` precedes `main/…`, because `-` is less than `/`. That is why
    all branches are needed before the first can be listed.

    Raises:
        S3Error: InvalidRequest for more than `Bounds.refs_max` branches.
        TarnError: an error of graveler.
    """

    async def page(token: str) -> tuple[list[str], str]:
        found = await backend.graveler.list_branches(
            call, request.repository, prefix=prefix, page_size=_PAGE, page_token=token
        )
        return [branch.branch_id for branch in found.branches], found.next_page_token

    return _roots(await _all(page, backend.bounds.refs_max))


async def ref_roots(backend: Backend, request: S3Request, call: Call, prefix: str) -> list[str]:
    """Returns `<name>/` of every branch and tag whose name begins with `prefix`, in the order of keys.

    Raises:
        S3Error: as `branch_roots`.
        TarnError: an error of graveler.
    """

    async def page(token: str) -> tuple[list[str], str]:
        found = await backend.graveler.list_tags(
            call, request.repository, prefix=prefix, page_size=_PAGE, page_token=token
        )
        return [tag.tag_id for tag in found.tags], found.next_page_token

    tags = _roots(await _all(page, backend.bounds.refs_max))
    return sorted({*await branch_roots(backend, request, call, prefix), *tags})


def _roots(names: list[str]) -> list[str]:
    return sorted(f"{name}/" for name in names)


async def _all(page: Callable[[str], Awaitable[tuple[list[str], str]]], most: int) -> list[str]:
    names: list[str] = []
    token = ""
    while True:
        found, token = await page(token)
        names += found
        if len(names) > most:
            text = f"The bucket has more than {most} refs like this; name one in the prefix."
            raise S3Error("InvalidRequest", text)
        if not token:
            return names


def within(root: str, after: str) -> str | None:
    """Translates `after` (a whole key, exclusive) into `root` (`<ref>/`): returns the path to begin after,
    or None if `after` is past every key of the root."""
    if after.startswith(root):
        return after[len(root) :]
    return "" if after < root else None
