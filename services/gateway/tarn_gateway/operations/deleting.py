"""DeleteObject and DeleteObjects. Deleting an absent key succeeds, as in S3."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tarn.core.access.actions import object_resource
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, parse_path
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import DELETE_BYTES_MAX, delete_parser
from tarn_gateway.grants import require
from tarn_gateway.http import Response
from tarn_gateway.s3error import S3Error, from_tarn_error
from tarn_gateway.s3request import S3Request, branch_to_write

__all__ = ["delete_object", "delete_objects"]

_BRANCHES_AT_ONCE: Final = 8

_TRY_AGAIN: Final = frozenset(
    {Kind.CONFLICT, Kind.EXHAUSTED, Kind.UNAVAILABLE, Kind.DEADLINE, Kind.UNKNOWN_OUTCOME}
)

Failures = dict[str, TarnError | S3Error]


async def delete_object(backend: Backend, request: S3Request) -> Response:
    """DeleteObject."""
    branch, path = request.branch, request.path
    if path:
        await backend.graveler.unstage(backend.call(request), request.repository, branch, path)
    # Otherwise the root of a branch, a directory that is never stored (see `reading`): nothing to delete.
    return Response(204)


async def delete_objects(backend: Backend, request: S3Request) -> Response:
    """DeleteObjects: up to 1,000 keys of any branches, with an outcome for each.

    If nothing could be deleted because graveler is unavailable, the whole request fails with 503: SDKs
    retry that, but report failures of single keys to their callers.
    """
    user_id = request.granted.grant.user_id
    payload = backend.payload(request)
    wanted = await backend.documents.read(payload, user_id, DELETE_BYTES_MAX, delete_parser)
    failures: Failures = {}
    by_branch: dict[BranchId, dict[str, str]] = {}
    for key in dict.fromkeys(wanted.keys):
        try:
            branch, path = _target(request, key)
        except (TarnError, S3Error) as error:
            failures[key] = error
        else:
            if path:
                by_branch.setdefault(branch, {})[key] = path
    slots = asyncio.Semaphore(_BRANCHES_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for branch, paths in by_branch.items():
            group.create_task(_unstage(backend, request, branch, paths, failures, slots))
    _give_up_together(wanted.keys, failures)
    outcomes = [_outcome(key, failures.get(key)) for key in wanted.keys]
    for outcome in outcomes:
        code = "" if isinstance(outcome, xml_out.DeletedKey) else outcome.code
        request.outcomes.append((_resource(request, outcome.key), code))
    return xml_out.answer(xml_out.delete_result(outcomes, quiet=wanted.quiet))


def _resource(request: S3Request, key: str) -> str:
    """Returns the resource of a key as the client spelled it, which may be invalid."""
    ref, _, path = (request.place.root + key).partition("/")
    return f"repository/{request.repository}/branch/{ref}/object/{path}"


def _target(request: S3Request, key: str) -> tuple[BranchId, str]:
    """Returns branch and path of a key, after checking that the caller may delete it."""
    target = request.ref_path_of(key)
    branch = branch_to_write(target.ref)
    resource = object_resource(request.repository, branch, target.path)
    require(request, request.operation.action, resource)
    return branch, parse_path(target.path) if target.path else ""


async def _unstage(
    backend: Backend,
    request: S3Request,
    branch: BranchId,
    paths: dict[str, str],
    failures: Failures,
    slots: asyncio.Semaphore,
) -> None:
    """Unstages the paths (by key) of one branch; adds failed keys to `failures`."""
    async with slots:
        try:
            outcomes = await backend.graveler.unstage_many(
                backend.call(request), request.repository, branch, list(paths.values())
            )
        except TarnError as error:
            failures.update(dict.fromkeys(paths, error))
            return
    for key, outcome in zip(paths, outcomes, strict=True):
        if outcome is not None:
            failures[key] = outcome


def _give_up_together(keys: Sequence[str], failures: Failures) -> None:
    if len(failures) < len(set(keys)):
        return
    for error in failures.values():
        if isinstance(error, TarnError) and error.kind in _TRY_AGAIN:
            raise error


def _outcome(key: str, error: TarnError | S3Error | None) -> xml_out.DeletedKey | xml_out.FailedKey:
    if error is None:
        return xml_out.DeletedKey(key)
    shown = from_tarn_error(error, write=True) if isinstance(error, TarnError) else error
    return xml_out.FailedKey(key, shown.code, shown.message)
