"""Objects: a folder of a ref by pages, and one object with its metadata and a preview."""

from __future__ import annotations

import asyncio
import posixpath
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from markupsafe import Markup
from msgspec import Struct
from starlette.responses import Response

from tarn.block.port import FileSlice
from tarn.core.entry import Entry, unpack
from tarn.objects.bodies import block_key, open_body
from tarn.objects.erased import told_if_erased
from tarn_api.context import Context
from tarn_api.forms import Form
from tarn_api.operations import shapes
from tarn_api.operations.paging import filled
from tarn_api.web import links
from tarn_api.web.choices import refs_offered
from tarn_api.web.markdown import MARKDOWN_BYTES_MAX, html_of, is_markdown
from tarn_api.web.marks import Marks, marks_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.parquet import Facts, is_parquet, parquet_of
from tarn_api.web.place import PAGE_SIZE, endpoint_of, find_branch, folders_of, way_to
from tarn_api.web.previews import PREVIEW_BYTES_MAX, Preview, preview_of

__all__ = [
    "BranchObjectAt",
    "FolderAt",
    "ObjectAt",
    "Row",
    "delete",
    "folder",
    "read_begin",
    "show",
]


_DOCUMENT_SECONDS: Final = 10
"""For its turn and its work."""


class FolderAt(Struct, kw_only=True):
    """A page of a folder.

    Attributes:
        repository: the repository.
        ref: any ref.
        prefix: begins the paths; a folder ends with a slash.
        after: the last row of the page before.
    """

    repository: str
    ref: str
    prefix: str = ""
    after: str = ""


class ObjectAt(Struct, kw_only=True):
    """An object of a ref."""

    repository: str
    ref: str
    path: str


class BranchObjectAt(Struct, kw_only=True):
    """An object of a branch, to be changed. Its path is no field of a form: browsers change line breaks in these."""

    repository: str
    branch: str
    path: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a folder.

    Attributes:
        path: of the object, or the prefix of the folder.
        entry: None for a folder, and for an object that an uncommitted change deletes.
        mark: the uncommitted change; empty if there is none.
    """

    path: str
    entry: Entry | None
    mark: str = ""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.entry is None and self.path.endswith("/")

    def name_in(self, folder: str) -> str:
        """Returns its name in a folder; an object may have the name of the folder itself."""
        return self.path[len(folder) :] or "(the folder itself)"


async def folder(context: Context, at: FolderAt) -> Page:
    """The objects and folders below a prefix. Of a branch with its uncommitted changes, which are marked."""
    call = context.read()

    async def fetch(size: int, token: str) -> tuple[list[tuple[str, bytes]], str]:
        page = await context.graveler.list_entries(
            call,
            at.repository,
            at.ref,
            prefix=at.prefix,
            delimiter="/",
            after=at.after,
            page_size=size,
            page_token=token,
        )
        return list(zip(page.paths, page.entries, strict=True)), page.next_page_token

    found, has_more = await filled(fetch, PAGE_SIZE, lambda each: each[0], at.after)
    more = found[-1][0] if has_more else ""
    is_branch = await find_branch(context, at.repository, at.ref)
    marks = Marks()
    if is_branch:
        marks = await marks_of(context, at.repository, at.ref, at.prefix, at.after, more)
    parent = at.prefix[: at.prefix.rfind("/") + 1]
    rows = _rows(found, marks)
    return render(
        context,
        "objects.html",
        title=f"{at.repository}: {parent or 'objects'}",
        crumbs=[*way_to(at.repository, at.ref), *folders_of(at.repository, at.ref, parent)],
        at=at,
        parent=parent,
        rows=rows,
        marks=marks,
        is_branch=is_branch,
        is_empty=not (rows or at.prefix or at.after),
        more=more,
        s3=endpoint_of(context),
        names=await refs_offered(context, at.repository),
    )


def _rows(found: list[tuple[str, bytes]], marks: Marks) -> list[Row]:
    """Returns the rows of a page, with those that an uncommitted change took out of the listing."""
    rows = {
        path: Row(path, unpack(packed) if packed else None, marks.by_path.get(path, ""))
        for path, packed in found
    }
    for path, mark in marks.by_path.items():
        rows.setdefault(path, Row(path, None, mark))
    return [rows[path] for path in sorted(rows)]


async def show(context: Context, at: ObjectAt) -> Page:
    """An object: what is known about it, and a preview."""
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    entry = unpack(found.entry)
    is_external = bool(entry.external_address)
    preview = Preview("none")
    parquet = document = None
    if not is_external:
        begin = await read_begin(context, at, entry, found.storage_namespace, PREVIEW_BYTES_MAX)
        preview = preview_of(at.path, entry, begin)
        if is_parquet(begin) and not entry.content_encoding:
            parquet = await _parquet_of(context, at, entry, found.storage_namespace)
        is_document = preview.kind == "text" and is_markdown(at.path, entry.content_type)
        if is_document and entry.size <= MARKDOWN_BYTES_MAX:
            document = await _document_of(context, at, begin)
    parent = at.path[: at.path.rfind("/", 0, -1) + 1]
    name = at.path[len(parent) :]
    return render(
        context,
        "object.html",
        title=name,
        crumbs=[
            *way_to(at.repository, at.ref),
            *folders_of(at.repository, at.ref, parent),
            Crumb(name),
        ],
        at=at,
        entry=entry,
        content_type=shapes.content_type(entry),
        address=shapes.object_stats(
            name, entry, found.storage_namespace, with_metadata=False
        ).physical_address,
        preview=preview,
        parquet=parquet,
        document=document,
        is_external=is_external,
        is_branch=await find_branch(context, at.repository, at.ref),
    )


async def read_begin(
    context: Context, at: ObjectAt, entry: Entry, namespace: str, bytes_max: int
) -> bytes:
    """Returns the first bytes of an object that the caller may read: graveler gave out its entry."""
    return await _read(context, at, entry, namespace, 0, min(entry.size, bytes_max))


async def _parquet_of(context: Context, at: ObjectAt, entry: Entry, namespace: str) -> Facts | None:
    async def read(begin: int, length: int) -> bytes:
        return await _read(context, at, entry, namespace, begin, length)

    return await parquet_of(entry.size, read, context.backend.reading_parquet)


async def _document_of(context: Context, at: ObjectAt, content: bytes) -> Markup | None:
    """Returns Markdown as HTML, with links to objects of this ref; None: others are being rendered for too long."""

    def target(href: str) -> str:
        if ":" in href or href.startswith(("/", "#", "?")):
            return ""
        folder = at.path[: at.path.rfind("/") + 1]
        path = posixpath.normpath(folder + unquote(href.partition("#")[0].partition("?")[0]))
        is_outside = path.startswith("..") or path == "."
        return (
            ""
            if is_outside
            else links.to_repository(at.repository, "object", ref=at.ref, path=path)
        )

    text = content.decode("utf-8-sig")
    try:
        async with asyncio.timeout(_DOCUMENT_SECONDS), context.backend.reading_markdown:
            return await asyncio.to_thread(html_of, text, target, headings_below=2)
    except TimeoutError:
        return None


async def _read(
    context: Context, at: ObjectAt, entry: Entry, namespace: str, begin: int, length: int
) -> bytes:
    async with told_if_erased(context.objects, context, at.repository, at.ref, at.path):
        body = await open_body(
            context.blocks, block_key(namespace, entry), begin, length, length, as_file=False
        )
    assert not isinstance(body, FileSlice), "it was not asked for"
    assert isinstance(body, bytes), "it is small"
    return body


async def delete(context: Context, at: BranchObjectAt, form: Form) -> Response:
    """Deletes an object of a branch, and goes to its folder."""
    del form
    await context.graveler.unstage(context.change(), at.repository, at.branch, at.path)
    parent = at.path[: at.path.rfind("/", 0, -1) + 1]
    return redirect(links.to_repository(at.repository, "objects", ref=at.branch, prefix=parent))
