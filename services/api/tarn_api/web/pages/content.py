"""The bytes of objects: downloads, pictures, uploads. Content of users is never a page of this origin.

A download is an attachment without a type. A picture is one by its first bytes, and has no rights (`sandbox`). Pages
run only the script and the style sheet that carry their nonce, so that neither can serve as one.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from msgspec import Struct
from starlette.responses import Response

from tarn.core.access.actions import Action, object_resource
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.entry import unpack
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId, parse_branch_id, parse_path
from tarn.core.printable import printable
from tarn.objects.forms import is_form
from tarn.objects.headers import stored_headers
from tarn.objects.incoming import BodyTooLargeError, IncomingBody, StreamedBody
from tarn.objects.writing import store_object
from tarn_api.bodies import file_of_form, received
from tarn_api.browsers import is_local
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.operations.reading import object_response
from tarn_api.web import links
from tarn_api.web.page import redirect
from tarn_api.web.pages.objects import ObjectAt, read_begin
from tarn_api.web.place import RepositoryAt
from tarn_api.web.previews import PICTURE_BYTES_MAX, picture_type
from tarn_rest import operations as op

__all__ = ["UploadAt", "download", "make_folder", "picture", "upload"]

_PICTURE_BEGIN = 16


class UploadAt(Struct, kw_only=True):
    """A place for an upload: a branch, and the folder of the page that has the form."""

    repository: str
    branch: str
    prefix: str = ""


async def download(context: Context, at: ObjectAt) -> Response:
    """Sends a browser to the S3 endpoint for an object, to be stored as a file; or sends the object, or a range of it.

    The object is looked up first: whoever may not read it, or misspells it, gets a page and not an answer of S3.
    """
    if (host := _s3_host(context, at.path)) and context.request.method == "GET":
        await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
        if target := await _signed(context, at, host):
            return redirect(f"{urlsplit(context.backend.s3.url).scheme}://{host}{target}")
    asked = op.GetObject(repository=at.repository, ref=at.ref, path=at.path)
    answer = await object_response(context, asked)
    answer.headers["Content-Type"] = "application/octet-stream"
    answer.headers["Content-Disposition"] = (
        f"attachment; filename*=UTF-8''{quote(_file_name(at.path), safe='')}"
    )
    return answer


async def picture(context: Context, at: ObjectAt) -> Response:
    """Sends a picture to be shown on the page of its object."""
    found = await context.graveler.lookup(context.read(), at.repository, at.ref, at.path)
    entry = unpack(found.entry)
    begin = await read_begin(context, at, entry, found.storage_namespace, _PICTURE_BEGIN)
    kind = picture_type(begin)
    if not kind or entry.size > PICTURE_BYTES_MAX:
        raise ApiError(404, f"{at.path} is no picture that pages show", reason="NOT_A_PICTURE")
    asked = op.GetObject(repository=at.repository, ref=at.ref, path=at.path)
    answer = await object_response(context, asked)
    answer.headers["Content-Type"] = kind
    answer.headers["Content-Disposition"] = "inline"
    return answer


async def upload(context: Context, at: UploadAt) -> Response:
    """Stores the file of a form as an object, and goes to its folder.

    The form has the fields `path` (empty: the name of the file) and `replace`, then the file `content`.
    """
    branch = parse_branch_id(at.branch)
    assert context.grant is not None, "uploads are not public"
    # Before a byte is read: may the caller write anything there? What it may write exactly follows with the path.
    inside = object_resource(at.repository, branch, "")
    context.grant.require_any(Action.WRITE_REPO, inside)
    kind = context.request.headers.get("content-type", "")
    if not is_form(kind):
        raise ApiError(400, "an upload is a form with a file", reason="MALFORMED")
    bounds = context.backend.bodies
    file = await file_of_form(kind, received(context.request, bounds))
    path = parse_path(_path_of(at.prefix, file.fields.get("path", ""), file.name))
    context.trace.values = {"repository": at.repository, "branch": branch, "path": path}
    context.require_write(at.repository, branch, path)
    condition = UNCONDITIONAL if file.fields.get("replace") else WriteCondition(if_none_match=True)
    small = context.objects.bounds.small_body_bytes
    try:
        body = await StreamedBody.begun(file.pieces, bytes_max=bounds.bytes_max, small=small)
        await _store(context, at.repository, branch, path, body, file.content_type, condition)
    except BodyTooLargeError as error:
        raise ApiError(413, error.message, reason="TOO_LARGE") from error
    except TarnError as error:
        if error.reason is not Reason.PRECONDITION_FAILED:
            raise
        text = f"there is an object {printable(path)} already; tick “Replace” to write over it"
        raise ApiError(412, text, reason=error.reason.value) from error
    parent = path[: path.rfind("/") + 1]
    return redirect(links.to_repository(at.repository, "objects", ref=branch, prefix=parent))


async def make_folder(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Makes an empty folder as S3 clients do, by an empty object whose path ends with a slash; and goes there. One that
    is there already stays."""
    branch = parse_branch_id(form.need("branch", "the branch"))
    name = form.need("name", "the name of the folder").strip("/")
    if not name:
        raise ApiError(400, "a folder needs a name", reason="INVALID_ARGUMENT")
    path = parse_path(f"{form.get('prefix', '')}{name}/")
    context.trace.values = {"repository": at.repository, "branch": branch, "path": path}
    context.require_write(at.repository, branch, path)
    try:
        body = StreamedBody.held(b"", bytes_max=0)
        absent = WriteCondition(if_none_match=True)
        await _store(context, at.repository, branch, path, body, "application/x-directory", absent)
    except TarnError as error:
        if error.reason is not Reason.PRECONDITION_FAILED:
            raise
    return redirect(links.to_repository(at.repository, "objects", ref=branch, prefix=path))


async def _store(
    context: Context,
    repository: str,
    branch: BranchId,
    path: str,
    body: IncomingBody,
    content_type: str,
    condition: WriteCondition,
) -> None:
    await store_object(
        context.objects,
        context,
        await context.objects.repository(context, repository),
        branch,
        path,
        body,
        stored_headers(content_type),
        condition=condition,
        operation=context.objects.ids.uuid7().hex() if condition else "",
    )


def _path_of(prefix: str, path: str, filename: str) -> str:
    """Returns the path of an upload: the one that was written, or the name of the file in the folder.

    Raises:
        ApiError: 400: no file was chosen.
    """
    if not filename:
        raise ApiError(400, "no file was chosen", reason="INVALID_ARGUMENT")
    if path.strip():
        return path.strip()
    return prefix[: prefix.rfind("/") + 1] + filename.replace("\\", "/").rpartition("/")[2]


def _s3_host(context: Context, path: str) -> str:
    """Returns the host of the S3 endpoint at which a browser gets an object; empty if it gets it here.

    Browsers follow no link from a page with TLS to a download without, and they resolve `.` and `..` in paths.
    """
    url = urlsplit(context.backend.s3.url)
    is_reachable = url.scheme == "https" or (url.scheme == "http" and is_local(context.request))
    if not is_reachable or {".", ".."} & set(path.split("/")):
        return ""
    default = ":443" if url.scheme == "https" else ":80"
    return url.netloc.lower().removesuffix(default)


async def _signed(context: Context, at: ObjectAt, host: str) -> str:
    """Returns path and query of a link that auth has signed for the caller; empty if it signs none.

    Raises:
        TarnError: auth refuses the caller, or gives no answer.
    """
    try:
        return await context.backend.auth.sign_download(
            context.read(),
            host=host,
            region=context.backend.s3.region,
            repository=at.repository,
            ref=at.ref,
            path=at.path,
            file_name=_file_name(at.path),
        )
    except TarnError as error:
        # A session key cannot sign so, and auth of the last release cannot at all: the bytes go through this process.
        if error.reason not in (Reason.ACCESS_DENIED, Reason.NOT_IMPLEMENTED):
            raise
        return ""


def _file_name(path: str) -> str:
    """Returns the name of the file of a download, without what a name of a file cannot have."""
    name = path.rstrip("/").rpartition("/")[2]
    shown = "".join(each for each in name if each.isprintable() and each not in '\\/:*?"<>|')
    return shown.strip(". ") or "object"
