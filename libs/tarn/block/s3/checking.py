"""Tests an S3 server for the features that the store needs, before a store is opened on it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from tarn.block.s3.faults import CallError, Failure
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.objects import Abilities
from tarn.block.s3.retrying import Retrying
from tarn.block.s3.spool import Held
from tarn.block.s3.wire import Wire
from tarn.core.errors import TarnError

__all__ = ["ServerCheck"]

T = TypeVar("T")

_BODY: Final = b"tarn"
_DENIED: Final = re.compile(r"AccessDenied|^403$")
"""Missing permissions. Wrong keys have other codes, and an answer to HEAD has only the status."""
_LOOK, _GET, _PUT = "s3:GetObject and s3:ListBucket", "s3:GetObject", "s3:PutObject"
_LIST, _ABORT, _DELETE = "s3:ListBucket", "s3:AbortMultipartUpload", "s3:DeleteObject"
_LACKS: Final = (Failure.LACKING, Failure.OTHER)
"""Failures with which servers reject a header that they do not know; other servers ignore it."""


class ServerCheck:
    """Creates an object, uses it as the store will use its objects, and removes it.

    Args:
        wire: makes the calls.
        retrying: repeats them.
        probe: a name that no other process uses.
        stamp: identifies the write.
    """

    def __init__(self, wire: Wire, retrying: Retrying, probe: ObjectKey, stamp: str) -> None:
        self._wire = wire
        self._retrying = retrying
        self._probe = probe
        self._stamp = stamp

    async def run(self) -> Abilities:
        """Returns the optional features that the server has.

        Raises:
            CallError: the server lacks a required feature or denies us access.
            TarnError: UNAVAILABLE if the server does not answer.
        """
        try:
            return await self._run()
        except (CallError, TarnError):
            with suppress(CallError, TarnError):
                await self._clean()
            raise

    async def _run(self) -> Abilities:
        wire, probe = self._wire, self._probe
        try:
            # GET, not HEAD: only an answer with a body gives the error. Without the permission to
            # list, S3 answers 403 for absent objects.
            await self._ask("look for an object", _LOOK, lambda: wire.get(probe, 0, 1))
        except CallError as fault:
            if fault.failure is not Failure.ABSENT:
                raise
        await self._ask(
            "write an object", _PUT, lambda: wire.put(probe, _BODY, self._stamp, if_absent=False)
        )
        body, size = await self._ask("read an object", _GET, lambda: wire.get(probe, 1, len(_BODY)))
        if (bytes(body), size) != (_BODY[1:], len(_BODY)):
            raise CallError(Failure.LACKING, "reads of a range")
        found = await self._ask("look at an object", _GET, lambda: wire.head(probe))
        if found.stamp != self._stamp:
            raise CallError(Failure.LACKING, "metadata of objects")
        rows, _ = await self._ask(
            "list objects", _LIST, lambda: wire.page(probe.bucket, probe.key, "", 1)
        )
        if [row.key for row in rows] != [probe.key]:
            raise CallError(Failure.LACKING, "listings that include the newest objects")
        put = await self._is_refused(
            "write an object once", lambda: wire.put(probe, _BODY, self._stamp, if_absent=True)
        )
        complete = await self._is_complete_refused()
        await self._clean()
        return Abilities(put_if_absent=put, complete_if_absent=put and complete)

    async def _is_complete_refused(self) -> bool:
        wire, probe = self._wire, self._probe
        upload_id = await self._ask(
            "begin a multipart upload", _PUT, lambda: wire.begin(probe, self._stamp)
        )
        etag = await self._ask(
            "upload a part", _PUT, lambda: wire.part(probe, upload_id, 1, Held(_BODY))
        )
        refused = await self._is_refused(
            "complete a multipart upload once",
            lambda: wire.complete(probe, upload_id, [(1, etag)], if_absent=True),
        )
        try:
            await self._ask(
                "abort a multipart upload", _ABORT, lambda: wire.abort(probe, upload_id)
            )
        except CallError as fault:
            if fault.failure not in (Failure.NO_UPLOAD, Failure.ABSENT):
                raise
        return refused

    async def _clean(self) -> None:
        probe = self._probe
        await self._ask(
            "delete an object", _DELETE, lambda: self._wire.delete(probe.bucket, [probe.key])
        )

    async def _ask(self, doing: str, needed: str, call: Callable[[], Awaitable[T]]) -> T:
        """Makes a call; if the server denies it, the error names the permissions that it needs."""
        try:
            return await self._retrying(doing, lambda: self._retrying.once(call))
        except CallError as fault:
            if fault.failure is not Failure.REFUSED or not _DENIED.search(fault.text):
                raise
            text = f"{fault.text}: to {doing}, they need {needed}"
            raise CallError(fault.failure, text) from fault

    async def _is_refused(self, doing: str, call: Callable[[], Awaitable[object]]) -> bool:
        """Returns whether the server refuses a conditional write. It must, because the object exists."""
        try:
            await self._ask(doing, _PUT, call)
        except CallError as fault:
            if fault.failure is Failure.TAKEN:
                return True
            if fault.failure not in _LACKS:
                raise
        return False
