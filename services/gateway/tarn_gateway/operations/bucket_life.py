"""CreateBucket and DeleteBucket. `gateways.s3.bucket_mode` says what a new bucket is (docs/design/bucket-views.md)."""

from __future__ import annotations

import hashlib
from typing import Final

from tarn.core.access.actions import Action, bucket_resource
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import BranchId
from tarn_gateway.backend import Backend, check_bucket_name
from tarn_gateway.bucket_cache import Place
from tarn_gateway.documents.xml_in import CREATE_BYTES_MAX, create_parser
from tarn_gateway.grants import require
from tarn_gateway.http import Response
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request

__all__ = ["create_bucket", "delete_bucket"]

_BRANCH: Final = "main"
_TAKEN: Final = frozenset({Reason.BUCKET_EXISTS, Reason.REPOSITORY_EXISTS})
_GONE: Final = frozenset(
    {
        Reason.BRANCH_NOT_FOUND,
        Reason.COMMIT_NOT_FOUND,
        Reason.REF_NOT_FOUND,
        Reason.REPOSITORY_NOT_FOUND,
        Reason.TAG_NOT_FOUND,
    }
)
"""Reasons of refusals to list a ref that no longer exists."""


async def create_bucket(backend: Backend, request: S3Request) -> Response:
    """CreateBucket: a view of branch `main` of a repository that it makes as well, or a repository.

    To create a bucket again that this made, and that the caller may read, succeeds and changes nothing, as in
    us-east-1: an SDK repeats a request whose answer is lost.

    Raises:
        S3Error: BucketAlreadyOwnedByYou: the caller may read what has the name, but a new bucket would be another;
            BucketAlreadyExists: the caller may not; InvalidLocationConstraint; NotImplemented if no buckets are made.
        TarnError: errors of graveler.
    """
    mode, name = backend.bucket_mode, request.address.bucket
    if mode == "refuse":
        text = "CreateBucket is not offered here (gateways.s3.bucket_mode). Administrators use `tarn bucket create`."
        raise S3Error("NotImplemented", text, Operation="CreateBucket")
    check_bucket_name(name)
    if mode == "view":
        require(request, Action.WRITE_BUCKETS, bucket_resource(name))
    await _check_region(backend, request)
    request = request.at(Place(name))  # a former view of the name is not what this is about
    try:
        if mode == "repository":
            await backend.graveler.create_repository(backend.call(request), name)
        else:
            await _create_view(backend, request, name)
    except TarnError as error:
        if error.reason not in _TAKEN:
            raise
        await _check_repeated(backend, request, error)
    backend.buckets.forget(name)
    return Response(200, [("Location", f"/{name}"), ("x-amz-bucket-arn", f"arn:aws:s3:::{name}")])


async def _check_region(backend: Backend, request: S3Request) -> None:
    if request.http.body.length == 0:
        return
    payload = backend.payload(request)
    user_id = request.granted.grant.user_id
    region = await backend.documents.read(payload, user_id, CREATE_BYTES_MAX, create_parser)
    if region not in ("", backend.region):
        raise S3Error("InvalidLocationConstraint", LocationConstraint=region[:80])


def _repository_behind(bucket: str) -> str:
    """Returns the name of the repository behind a bucket: the same for each attempt, so that attempts whose answers are
    lost leave one repository; and none that a person would choose, because a name belongs to one bucket only."""
    digest = hashlib.sha256(bucket.encode()).hexdigest()
    return f"{bucket[:45].rstrip('-')}-{digest[:8]}"


async def _create_view(backend: Backend, request: S3Request, name: str) -> None:
    repository_id = _repository_behind(name)
    try:
        await backend.graveler.create_repository(backend.call(request), repository_id)
    except TarnError as error:
        if error.reason is not Reason.REPOSITORY_EXISTS:
            raise
        if not await _is_unused(backend, request, repository_id):
            # An earlier bucket of the name left its data there.
            repository_id = f"{repository_id}-{backend.ids.uuid7().hex()[-8:]}"
            await backend.graveler.create_repository(backend.call(request), repository_id)
    await backend.graveler.create_bucket_view(backend.call(request), name, repository_id, _BRANCH)


async def _is_unused(backend: Backend, request: S3Request, repository_id: str) -> bool:
    """Returns whether nothing was written to a repository, as far as its default branch shows."""
    try:
        head = await backend.graveler.get_commit(backend.call(request), repository_id, _BRANCH)
        if head.parent_ids or not await _is_empty(backend, request, Place(repository_id, _BRANCH)):
            return False
        uploads = await backend.graveler.list_uploads(
            backend.call(request), repository_id, BranchId(_BRANCH), page_size=1
        )
        return not uploads.uploads and not uploads.is_truncated
    except TarnError as error:
        if error.reason in _GONE:
            return False
        raise


async def _is_empty(backend: Backend, request: S3Request, place: Place) -> bool:
    call = backend.call(request, backend.bounds.list_timeout_s)
    token = ""
    while True:
        page = await backend.graveler.list_entries(
            call, place.repository, place.ref, page_size=1, page_token=token
        )
        token = page.next_page_token
        if page.paths or not token:
            return not page.paths


async def _check_repeated(backend: Backend, request: S3Request, error: TarnError) -> None:
    """Raises the error of a name that is taken, unless by what this request would have made."""
    name = request.address.bucket
    place = await backend.place(request, name, is_fresh=True)
    try:
        await backend.graveler.get_repository(backend.call(request), place.repository)
    except TarnError as unread:
        if unread.reason in (Reason.ACCESS_DENIED, Reason.REPOSITORY_NOT_FOUND):
            raise S3Error("BucketAlreadyExists", BucketName=name) from error
        raise
    if backend.bucket_mode == "repository":
        is_repeated = not place.ref
    else:
        is_repeated = bool(place.ref) and place.repository.startswith(_repository_behind(name))
    if not is_repeated:
        raise S3Error("BucketAlreadyOwnedByYou", BucketName=name) from error


async def delete_bucket(backend: Backend, request: S3Request) -> Response:
    """DeleteBucket: removes a bucket view that shows no object.

    The repository behind it stays. A write through the view may be on its way, and no check can tell that it will not
    be acknowledged; `tarn repo delete` is for administrators who know. If nothing was written to it, the next bucket of
    this name has it.

    Raises:
        S3Error: BucketNotEmpty; NotImplemented for the name of a repository.
        TarnError: REPOSITORY_NOT_FOUND: there is no such bucket; errors of graveler.
    """
    name = request.address.bucket
    place = await backend.place(request, name, is_fresh=True)
    request = request.at(Place(name))
    if not place.ref:
        await backend.graveler.get_repository(backend.call(request), name)
        text = "The bucket is a repository; delete it with `tarn repo delete`."
        raise S3Error("NotImplemented", text, Operation="DeleteBucket")
    try:
        is_empty = await _is_empty(backend, request, place)
    except TarnError as error:
        if error.reason is Reason.ACCESS_DENIED:
            raise S3Error("AccessDenied") from None  # its text would tell what the view shows
        if error.reason not in _GONE:
            raise
        is_empty = True
    if not is_empty:
        raise S3Error("BucketNotEmpty")
    etag = place.version.removeprefix(f"{name}:")
    await backend.graveler.delete_bucket_view(backend.call(request), name, etag=etag)
    backend.buckets.forget(name)
    return Response(204)
