"""Uploads through any gateways: replaced parts, repeated and concurrent completions, aborts, listings, and
requests that must fail after the end of an upload.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.branch_life import BranchLife
from tests.sim.lost import LostError
from tests.support.check.history import ABSENT, NEVER, Op, OpKind, Outcome

from tarn.core.errors import Kind, TarnError
from tarn.objects.checksums import multipart_md5
from tarn_gateway.http import Response
from tarn_gateway.operations.table import BY_NAME, Row
from tarn_gateway.s3error import S3Error
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

if TYPE_CHECKING:
    from tests.sim.workload import Client

__all__ = ["Uploading"]

_TRIES = 5
_CLIENT_ERRORS = {
    Kind.NOT_FOUND,
    Kind.ALREADY_EXISTS,
    Kind.INVALID,
    Kind.DENIED,
    Kind.FAILED_PRECONDITION,
}
"""Kinds that become a 4xx status. After a 5xx the outcome is unknown in S3."""

Error = TarnError | S3Error | LostError


def _is_refusal(error: Error) -> bool:
    if isinstance(error, TarnError):
        return error.kind in _CLIENT_ERRORS
    return isinstance(error, S3Error) and error.status < 500


def _reason_of(error: Error) -> str:
    if isinstance(error, TarnError):
        return error.reason
    return error.code if isinstance(error, S3Error) else ""


@dataclass
class _Upload:
    """An upload as its client knows it.

    Attributes:
        parts: acknowledged bodies, by part number.
        op: its completion.
        calls: number of completions that were requested.
        refusals: whether every attempt so far was surely refused.
        reason: why the last of them was refused.
        is_aborted: whether an abort was acknowledged.
        is_ending: whether an abort was requested.
        are_parts_sure: whether every part that was sent was acknowledged, so that each is the newest of its number.
        life: the life of its branch, which ends it; None before it has begun.
    """

    branch: str
    key: str
    made: pb.Upload
    condition: dict[str, str] = field(default_factory=dict)
    expected: int | None = None
    parts: dict[int, bytes] = field(default_factory=dict)
    op: Op | None = None
    refusals: bool = True
    calls: int = 0
    note: str = ""
    reason: str = ""
    is_aborted: bool = False
    is_ending: bool = False
    are_parts_sure: bool = True
    life: BranchLife | None = None

    @property
    def grounds(self) -> frozenset[str]:
        """Returns why its completion may be refused, as far as other requests of its client tell."""
        found = {"UPLOAD_NOT_FOUND": self.is_ending, "InvalidPart": not self.are_parts_sure}
        return frozenset(reason for reason, holds in found.items() if holds)

    @property
    def etag(self) -> str:
        """Returns the ETag of the object."""
        digests = [hashlib.md5(self.parts[n]).digest() for n in sorted(self.parts)]
        return f"{multipart_md5(digests).hex()}-{len(digests)}"

    @property
    def manifest(self) -> bytes:
        """Returns the body of the CompleteMultipartUpload request."""
        lines = "".join(
            f"<Part><PartNumber>{n}</PartNumber>"
            f"<ETag>{hashlib.md5(self.parts[n]).hexdigest()}</ETag></Part>"
            for n in sorted(self.parts)
        )
        return f"<CompleteMultipartUpload>{lines}</CompleteMultipartUpload>".encode()


class Uploading:
    """The uploads of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._world = client.world
        self._random = client.random

    async def upload(self, branch: str, key: str) -> None:
        """Plays one upload from its creation until after its end."""
        upload = await self._begin(branch, key)
        if upload is None or not await self._send_parts(upload):
            return
        chance = self._random.random()
        if chance < 0.1:
            await self._abort(upload)
            return
        if chance < 0.2:
            await self._listed(upload, is_open=True)
        self._condition(upload)
        values, history = self._world.values, self._world.history
        made, body = upload.made, b"".join(upload.parts[n] for n in sorted(upload.parts))
        value = values.joined(upload.etag, made.storage_namespace, made.address, body)
        upload.op = history.begin(self._client.name, OpKind.PUT, branch, key, value)
        upload.op.expected, upload.op.is_upload = upload.expected, True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._complete(upload))
            if self._random.random() < 0.4:
                # A client that hung up asks another gateway.
                group.create_task(self._complete(upload))
            if self._random.random() < 0.15:
                group.create_task(self._abort(upload))
        op = upload.op
        if op.end == NEVER:
            op.grounds = upload.grounds
            if self._may_have_lost_its_branch(upload):
                op.grounds |= {"UPLOAD_NOT_FOUND"}
            outcome = Outcome.FAIL if upload.refusals else Outcome.INFO
            op.reason = upload.reason if upload.refusals else ""
            history.finish(op, outcome, f"multipart: {upload.note}")
        if op.is_ok:
            await self._afterwards(upload)

    async def _request(
        self,
        upload: _Upload,
        operation: Row,
        query: dict[str, str],
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> Response:
        repository_id, branch_id = upload.branch.split("/")
        return await self._world.some_gateway(self._random).request(
            operation,
            repository_id,
            f"{branch_id}/{upload.key}",
            {"uploadId": upload.made.upload_id, **query},
            body,
            headers,
            seconds=self._client.patience_seconds,
        )

    def _may_have_lost_its_branch(self, upload: _Upload) -> bool:
        return upload.life is not None and upload.life.may_be_over(self._world.history)

    async def _begin(self, branch: str, key: str) -> _Upload | None:
        client = self._client
        repository_id, branch_id = branch.split("/")
        life = BranchLife.of(self._world.history, branch)
        try:
            answer = await self._request(
                _Upload(branch, key, pb.Upload()), BY_NAME["CreateMultipartUpload"], {}
            )
            assert isinstance(answer.body, bytes), "the document is short"
            found = re.search(rb"<UploadId>(\w+)</UploadId>", answer.body)
            assert found is not None, answer.body
            upload_id = found[1].decode()
            made = await client.graveler.get_upload(
                client.call(), repository_id, branch_id, key, upload_id
            )
        except (TarnError, S3Error, LostError):
            return None
        return _Upload(branch, key, made, life=life)

    async def _send_parts(self, upload: _Upload) -> bool:
        """Sends one to three bodies for one or two parts; of each number the last acknowledged body counts."""
        for number in self._random.choice([(1,), (1, 1), (1, 2), (2, 1, 2)]):
            body = f"{upload.made.upload_id} {number} {self._random.random()}".encode()
            try:
                await self._send_part(upload, number, body)
            except (TarnError, S3Error, LostError):
                upload.are_parts_sure = False
                if self._random.random() < 0.5:
                    return False  # the client dies, too, and the upload is never ended
            else:
                upload.parts[number] = body
        return bool(upload.parts)

    async def _send_part(self, upload: _Upload, number: int, body: bytes) -> None:
        await self._request(upload, BY_NAME["UploadPart"], {"partNumber": str(number)}, body)

    def _condition(self, upload: _Upload) -> None:
        """Chooses a condition for some completions: the key must be as the client believes."""
        if self._random.random() >= min(1.0, self._world.plan.conditional_weight / 8):
            return
        seen = self._client.saw(upload.branch, upload.key)
        upload.expected = ABSENT if self._random.random() < 0.5 else seen
        if upload.expected == ABSENT:
            upload.condition = {"if-none-match": "*"}
        else:
            upload.condition = {"if-match": f'"{self._world.values.etag(upload.expected)}"'}

    async def _complete(self, upload: _Upload) -> None:
        """Repeats the completion until there is an answer, as SDKs do."""
        op, history = upload.op, self._world.history
        assert op is not None, "the completion has begun"
        for _ in range(_TRIES):
            upload.calls += 1
            op.calls = upload.calls
            try:
                answer = await self._ask_complete(upload)
            except (TarnError, S3Error, LostError) as error:
                upload.note = str(error)[:80]
                if not _is_refusal(error):
                    upload.refusals = False
                elif op.outcome is not Outcome.OK:
                    upload.reason = _reason_of(error)
                    return
            else:
                self._check_answer(upload, answer)
                if not op.is_ok:
                    history.finish(op, Outcome.OK, "multipart")
                if upload.is_aborted:
                    text = f"upload {upload.made.upload_id} was aborted and completed"
                    self._world.problem(text)
                return
            await asyncio.sleep(self._random.uniform(0, self._world.plan.claim_seconds / 2))

    async def _ask_complete(self, upload: _Upload) -> Response:
        operation = BY_NAME["CompleteMultipartUpload"]
        return await self._request(upload, operation, {}, upload.manifest, upload.condition)

    def _check_answer(self, upload: _Upload, answer: Response) -> None:
        assert isinstance(answer.body, bytes), "the document is short"
        if upload.etag.encode() not in answer.body:
            text = f"upload {upload.made.upload_id} was answered with another object"
            self._world.problem(f"{text}: {answer.body!r} instead of {upload.etag}")

    async def _abort(self, upload: _Upload) -> None:
        upload.is_ending = True
        try:
            await self._request(upload, BY_NAME["AbortMultipartUpload"], {})
        except (TarnError, S3Error, LostError):
            return
        upload.is_aborted = True
        if upload.op is not None and upload.op.is_ok:
            text = f"upload {upload.made.upload_id} was completed and aborted"
            self._world.problem(text)
        await self._listed(upload, is_open=False)

    async def _afterwards(self, upload: _Upload) -> None:
        """Plays what happens after a completion: repeats by a client without an answer, and requests that must fail."""
        await asyncio.sleep(self._random.uniform(0, 3.0))
        chance = self._random.random()
        upload_id = upload.made.upload_id
        try:
            if chance < 0.4:
                self._check_answer(upload, await self._ask_complete(upload))
            elif chance < 0.6:
                await self._listed(upload, is_open=False)
            elif chance < 0.7:
                await self._send_part(upload, 1, b"too late")
                self._world.problem(f"upload {upload_id} took a part after it was completed")
            elif chance < 0.8 and len(upload.parts) == 2:
                other = _Upload(upload.branch, upload.key, upload.made, parts={1: upload.parts[1]})
                await self._ask_complete(other)
                self._world.problem(f"upload {upload_id} was completed by other parts, too")
        except (TarnError, S3Error, LostError):
            pass

    async def _listed(self, upload: _Upload, *, is_open: bool) -> None:
        """Checks that a listing has the upload if and only if it is open."""
        repository_id, branch_id = upload.branch.split("/")
        client = self._client
        try:
            page = await client.graveler.list_uploads(
                client.call(), repository_id, branch_id, prefix=upload.key
            )
        except TarnError:
            return
        is_there = any(each.upload_id == upload.made.upload_id for each in page.uploads)
        is_of_lake = repository_id == "lake"  # other repositories may be removed at any time
        if is_there and not is_open:
            self._world.problem(f"upload {upload.made.upload_id} has ended and is listed")
        elif (
            is_open
            and not is_there
            and not page.is_truncated
            and is_of_lake
            and not self._may_have_lost_its_branch(upload)
        ):
            self._world.problem(f"upload {upload.made.upload_id} is open and not listed")
