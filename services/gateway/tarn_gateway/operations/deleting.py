"""DeleteObject and DeleteObjects. Deleting an absent key succeeds, as in S3.

A delete may have a condition (S3 user guide, "How to perform conditional deletes"; S3 API, DeleteObject and
ObjectIdentifier). Graveler decides it together with the delete, as for conditional writes. What S3 answers, measured
against general purpose buckets in 2026 (localstack issue 13894): 412 PreconditionFailed if the object is another one,
404 NoSuchKey for any If-Match without an object. A size or a time alone does not need an object: then 204.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tarn.core.access.actions import object_resource
from tarn.core.condition import ANY, UNCONDITIONAL, WriteCondition
from tarn.core.entry import tombstone_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, parse_path
from tarn.core.refs import branch_to_write
from tarn.objects.checksums import EMPTY_MD5
from tarn.objects.writing import look_again
from tarn_gateway.backend import Backend
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import DELETE_BYTES_MAX, delete_parser
from tarn_gateway.grants import require
from tarn_gateway.http import Response
from tarn_gateway.operations.conditional import (
    operation_id,
    requested_delete_condition,
    require_reading,
    unknown_if_repeated,
)
from tarn_gateway.s3error import S3Error, from_tarn_error
from tarn_gateway.s3request import S3Request

__all__ = ["delete_object", "delete_objects"]

_BRANCHES_AT_ONCE: Final = 8
_CONDITIONAL_AT_ONCE: Final = 16
"""Conditional deletes of one request that graveler decides concurrently; each is a call of its own."""

_TRY_AGAIN: Final = frozenset(
    {Kind.CONFLICT, Kind.EXHAUSTED, Kind.UNAVAILABLE, Kind.DEADLINE, Kind.UNKNOWN_OUTCOME}
)

_STAGED_DELETE: Final = "entry.flags"
"""The field that a replica of release 0.9.0 names when it refuses the tombstone of a conditional delete."""

Failures = dict[str, TarnError | S3Error]

_Conditional = tuple[BranchId, str, WriteCondition]
"""Branch, path and condition of a key."""


async def delete_object(backend: Backend, request: S3Request) -> Response:
    """DeleteObject."""
    condition = requested_delete_condition(request)
    branch, path = request.branch, request.path
    if condition:
        operation = operation_id(backend, request)
        await _delete_if(backend, request, branch, path, condition, operation)
    elif path:
        await backend.graveler.unstage(backend.call(request), request.repository, branch, path)
    else:
        # The root of a branch, a directory that is never stored (see `reading`): nothing to delete.
        await backend.repositories.refuse_unknown(backend.call(request), request.repository)
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
    conditional: dict[str, _Conditional] = {}
    for key in dict.fromkeys(wanted.keys):
        condition = wanted.conditions.get(key, UNCONDITIONAL)
        try:
            branch, path = _target(request, key, condition)
        except (TarnError, S3Error) as error:
            failures[key] = error
        else:
            if condition:
                conditional[key] = branch, path, condition
            elif path:
                by_branch.setdefault(branch, {})[key] = path
    slots = asyncio.Semaphore(_BRANCHES_AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for branch, paths in by_branch.items():
            group.create_task(_unstage(backend, request, branch, paths, failures, slots))
        if conditional:
            group.create_task(_delete_each_if(backend, request, conditional, failures))
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


def _target(request: S3Request, key: str, condition: WriteCondition) -> tuple[BranchId, str]:
    """Returns branch and path of a key, after checking that the caller may delete it, and ask for its condition."""
    target = request.ref_path_of(key)
    branch = branch_to_write(target.ref)
    resource = object_resource(request.repository, branch, target.path)
    require(request, request.operation.action, resource)
    if condition:
        require_reading(request, target)
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


async def _delete_each_if(
    backend: Backend, request: S3Request, keys: Mapping[str, _Conditional], failures: Failures
) -> None:
    """Deletes the keys whose conditions hold; adds the others to `failures`. An SDK's retry has the same operation."""
    operation, slots = operation_id(backend, request), asyncio.Semaphore(_CONDITIONAL_AT_ONCE)
    # All keys together: a graveler that hangs must not hold a request for its thousand keys, one after the other.
    latest = backend.call(request, backend.bounds.delete_timeout_s).deadline

    async def delete(key: str, place: _Conditional) -> None:
        async with slots:
            try:
                await _delete_if(backend, request, *place, operation, latest)
            except (TarnError, S3Error) as error:
                failures[key] = error

    async with asyncio.TaskGroup() as group:
        for key, place in keys.items():
            group.create_task(delete(key, place))


async def _delete_if(
    backend: Backend,
    request: S3Request,
    branch: BranchId,
    path: str,
    condition: WriteCondition,
    operation: str,
    latest: float = math.inf,
) -> None:
    """Deletes a path if its condition holds; `operation` stays the same in all attempts of an SDK.

    `latest` is the deadline of the request, by `Clock.monotonic`; a call may have an earlier one.

    Raises:
        TarnError: PRECONDITION_FAILED; ENTRY_NOT_FOUND for an If-Match without an object; OUTCOME_UNKNOWN, also if an
            earlier attempt of the request may have deleted it; other errors of graveler.
        S3Error: PreconditionFailed for the root of a branch; NotImplemented if the replica is of an older release;
            ServiceUnavailable if the repository was deleted and re-created in the meantime.
    """
    if not path:
        return _judge_root(condition)
    call = backend.call(request)
    call = replace(call, deadline=min(call.deadline, latest))
    repository = await backend.repositories.get(call, request.repository)
    try:
        await backend.graveler.stage(
            call,
            request.repository,
            repository.instance_uid,
            branch,
            path,
            tombstone_of(operation),
            condition,
        )
    except TarnError as error:
        if error.reason in (Reason.REPOSITORY_NOT_FOUND, Reason.REPOSITORY_DELETED):
            await look_again(backend, request, repository)
        if error.metadata.get("field") == _STAGED_DELETE:
            text = "A replica of an older release refused the condition of this delete."
            raise S3Error("NotImplemented", text) from error
        raise unknown_if_repeated(request, error) from error


def _judge_root(condition: WriteCondition) -> None:
    """Judges a conditional delete of the root of a branch, an empty directory without a time (see `reading`)."""
    holds = condition.if_match in ("", ANY, EMPTY_MD5.hex())
    if not holds or condition.size_bytes not in (None, 0) or condition.mtime_s is not None:
        raise S3Error("PreconditionFailed")


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
