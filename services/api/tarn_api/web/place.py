"""Where a page is: the repository, the ref, the way to it, and whether the ref takes changes."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from tarn.core.errors import Kind, Reason, TarnError
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.web import links
from tarn_api.web.page import Crumb

__all__ = [
    "PAGE_SIZE",
    "RepositoryAt",
    "endpoint_of",
    "find_branch",
    "folders_of",
    "require_head",
    "way_to",
]

PAGE_SIZE: Final = 100
_HOST: Final = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")


class RepositoryAt(Struct, kw_only=True):
    """A page about a repository."""

    repository: str


def way_to(repository: str, ref: str = "") -> list[Crumb]:
    """Returns the way to a page of a repository, or of one of its refs."""
    crumbs = [
        Crumb("Repositories", links.HOME),
        Crumb(repository, links.to_repository(repository)),
    ]
    if ref:
        crumbs.append(Crumb(ref, links.to_repository(repository, "objects", ref=ref)))
    return crumbs


def folders_of(repository: str, ref: str, prefix: str) -> list[Crumb]:
    """Returns the way through the folders of a path or of a prefix that ends with a slash."""
    crumbs, end = [], prefix.find("/") + 1
    begin = 0
    while end:
        href = links.to_repository(repository, "objects", ref=ref, prefix=prefix[:end])
        crumbs.append(Crumb(prefix[begin:end], href))
        begin, end = end, prefix.find("/", end) + 1
    return crumbs


async def find_branch(context: Context, repository: str, ref: str) -> bool:
    """Whether a ref is the name of a branch, so that it may be written. A caller who may read objects of it and not
    more is shown no forms."""
    try:
        await context.graveler.get_branch(context.read(), repository, ref)
    except TarnError as error:
        if error.reason is Reason.BRANCH_NOT_FOUND or error.kind in (Kind.INVALID, Kind.DENIED):
            return False
        raise
    return True


async def require_head(context: Context, repository: str, branch: str, head: str) -> None:
    """Refuses a form whose preview was made for another head of a branch.

    Raises:
        ApiError: 409.
    """
    found = await context.graveler.get_branch(context.read(), repository, branch)
    if found.commit_id != head:
        text = f"{branch} got another commit since the preview; look at the preview again"
        raise ApiError(409, text, reason=Reason.REF_MOVED.value)


def endpoint_of(context: Context) -> str:
    """Returns the URL of the S3 endpoint: the configured one, or the host by which the browser reached this page, with
    the port of the S3 endpoint."""
    s3 = context.backend.s3
    if s3.url:
        return s3.url
    found = _HOST.fullmatch(context.request.headers.get("host", ""))
    host = found[1] if found else "localhost"
    return f"{'https' if s3.is_tls else 'http'}://{host}:{s3.port}"
