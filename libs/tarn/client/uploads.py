"""Client of graveler's operations on S3 multipart uploads."""

from __future__ import annotations

from tarn.client.entries import condition_message
from tarn.client.rpc_client import RpcClient
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import upload_service_pb2 as pb
from tarn_proto.graveler.v1.upload_service_rpc import UploadServiceClient

__all__ = ["UploadClient"]


class UploadClient(RpcClient):
    """Begins, fills, completes and aborts uploads. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._upload_service = UploadServiceClient(transport)

    async def create_upload(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        path: str,
        *,
        template: bytes,
        checksum_algorithm: str = "",
        is_full_object_checksum: bool = False,
    ) -> pb.Upload:
        """Begins an upload.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository to write to.
            branch_id: the branch to write to; other refs take no writes.
            path: the path that the object will have.
            template: packed entry with the headers of the first request, without size and MD5.
            checksum_algorithm: such as `CRC32`; empty for none.
            is_full_object_checksum: the checksum covers the whole object, not the parts' checksums.
        """
        request = pb.CreateUploadRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            path=path,
            template=template,
            checksum_algorithm=checksum_algorithm,
            is_full_object_checksum=is_full_object_checksum,
        )
        answer = await self._upload_service.CreateUpload(request, call)
        return answer.upload

    async def get_upload(
        self, call: Call, repository_id: str, branch_id: str, path: str, upload_id: str
    ) -> pb.Upload:
        """Returns one upload.

        Raises:
            TarnError: NOT_FOUND, UPLOAD_NOT_FOUND: there is none, or it is for another branch or path.
        """
        request = pb.GetUploadRequest(
            repository_id=repository_id, branch_id=branch_id, path=path, upload_id=upload_id
        )
        answer = await self._upload_service.GetUpload(request, call)
        return answer.upload

    async def record_upload_part(
        self, call: Call, repository_id: str, upload_id: str, part: pb.UploadPart
    ) -> None:
        """Records a part whose bytes are durable. A later part with the same number replaces it."""
        request = pb.RecordUploadPartRequest(
            repository_id=repository_id, upload_id=upload_id, part=part
        )
        await self._upload_service.RecordUploadPart(request, call)

    async def list_upload_parts(
        self,
        call: Call,
        repository_id: str,
        upload_id: str,
        *,
        after_part_number: int = 0,
        page_size: int = 1000,
    ) -> pb.ListUploadPartsResponse:
        """Returns a page of parts in order of their numbers, at most 10,000: `parts`, `is_truncated`."""
        request = pb.ListUploadPartsRequest(
            repository_id=repository_id,
            upload_id=upload_id,
            after_part_number=after_part_number,
            page_size=page_size,
        )
        return await self._upload_service.ListUploadParts(request, call)

    async def list_uploads(
        self,
        call: Call,
        repository_id: str,
        branch_id: str,
        *,
        prefix: str = "",
        after_path: str = "",
        after_upload_id: str = "",
        page_size: int = 1000,
    ) -> pb.ListUploadsResponse:
        """Returns a page of open uploads in order of (path, id): `uploads`, `is_truncated`."""
        request = pb.ListUploadsRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            prefix=prefix,
            after_path=after_path,
            after_upload_id=after_upload_id,
            page_size=page_size,
        )
        return await self._upload_service.ListUploads(request, call)

    async def begin_complete_upload(
        self,
        call: Call,
        repository_id: str,
        upload_id: str,
        manifest_hash: bytes,
        claim: bytes = b"",
    ) -> pb.BeginCompleteUploadResponse:
        """Claims the completion. Returns `claim`, or `completed_entry` if it was completed with the same parts.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository of the upload.
            upload_id: the upload to complete.
            manifest_hash: SHA-256 over the part numbers and ETags that the client listed.
            claim: 16 random bytes of the caller, the same when it repeats the call after a lost answer; empty: graveler
                makes a claim.
        """
        request = pb.BeginCompleteUploadRequest(
            repository_id=repository_id,
            upload_id=upload_id,
            manifest_hash=manifest_hash,
            claim=claim,
        )
        return await self._upload_service.BeginCompleteUpload(request, call)

    async def finish_complete_upload(
        self,
        call: Call,
        repository_id: str,
        upload_id: str,
        claim: bytes,
        entry: bytes,
        condition: WriteCondition = UNCONDITIONAL,
        parts: bytes = b"",
    ) -> None:
        """Stages the packed entry of the whole object and records the answer.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository of the upload.
            upload_id: the upload to complete.
            claim: that of `begin_complete_upload`.
            entry: the packed entry, without its parts.
            condition: must hold immediately before the write.
            parts: sizes and checksums of the parts (`tarn.core.part_list`), kept in the entry; empty: none are kept.

        Raises:
            TarnError: the condition does not hold: FAILED_PRECONDITION, or NOT_FOUND with ENTRY_NOT_FOUND. The
                upload stays claimed.
        """
        request = pb.FinishCompleteUploadRequest(
            repository_id=repository_id,
            upload_id=upload_id,
            claim=claim,
            entry=entry,
            condition=condition_message(condition),
            parts=parts,
        )
        await self._upload_service.FinishCompleteUpload(request, call)

    async def reopen_upload(
        self,
        call: Call,
        repository_id: str,
        upload_id: str,
        claim: bytes,
        *,
        may_be_staged: bool = False,
    ) -> None:
        """Gives up a claim, so that the next completion need not wait until it is old.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository of the upload.
            upload_id: the upload.
            claim: that of `begin_complete_upload`.
            may_be_staged: whether it is unknown that nothing was staged; the upload cannot be aborted then.
        """
        request = pb.ReopenUploadRequest(
            repository_id=repository_id,
            upload_id=upload_id,
            claim=claim,
            may_be_staged=may_be_staged,
        )
        await self._upload_service.ReopenUpload(request, call)

    async def abort_upload(self, call: Call, repository_id: str, upload_id: str) -> None:
        """Aborts an upload. Refused with UPLOAD_BUSY while the upload is being completed."""
        request = pb.AbortUploadRequest(repository_id=repository_id, upload_id=upload_id)
        await self._upload_service.AbortUpload(request, call)
