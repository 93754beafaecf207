"""Client of graveler's dump, restore and recovery of repositories."""

from __future__ import annotations

from collections.abc import Sequence

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import dump_service_pb2 as pb
from tarn_proto.graveler.v1.dump_service_rpc import DumpServiceClient
from tarn_proto.graveler.v1.repository_service_pb2 import Repository

__all__ = ["DumpClient"]


class DumpClient(RpcClient):
    """Reads and writes dumps, page by page. Methods raise the `TarnError` that graveler raised; all may be repeated."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._dump_service = DumpServiceClient(transport)

    async def read_dump(
        self, call: Call, repository_id: str, *, page_size: int = 0, page_token: str = ""
    ) -> pb.ReadDumpResponse:
        """Returns a page of a dump: `lines`, `next_page_token`, `repository`."""
        request = pb.ReadDumpRequest(
            repository_id=repository_id, page_size=page_size, page_token=page_token
        )
        return await self._dump_service.ReadDump(request, call)

    async def begin_restore(
        self,
        call: Call,
        repository_id: str,
        storage_namespace: str,
        *,
        default_branch_id: str,
        restore_id: str,
    ) -> Repository:
        """Creates a bare repository over a storage namespace, or returns that of an earlier call.

        Raises:
            TarnError: ALREADY_EXISTS, REPOSITORY_EXISTS: the id or the namespace is taken, also by another restore;
                INVALID: the namespace holds no commits.
        """
        request = pb.BeginRestoreRequest(
            repository_id=repository_id,
            storage_namespace=storage_namespace,
            default_branch_id=default_branch_id,
            restore_id=restore_id,
        )
        answer = await self._dump_service.BeginRestore(request, call)
        return answer.repository

    async def read_namespace(
        self,
        call: Call,
        repository_id: str,
        restore_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.ReadNamespaceResponse:
        """Returns a page of a bare repository's namespace: `lines`, `damaged_paths`, `next_page_token`."""
        request = pb.ReadNamespaceRequest(
            repository_id=repository_id,
            restore_id=restore_id,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._dump_service.ReadNamespace(request, call)

    async def restore_records(
        self, call: Call, repository_id: str, restore_id: str, lines: Sequence[str]
    ) -> None:
        """Writes up to 500 lines to a bare repository; a commit after its parents, a ref after its commit."""
        request = pb.RestoreRecordsRequest(
            repository_id=repository_id, restore_id=restore_id, lines=lines
        )
        await self._dump_service.RestoreRecords(request, call)

    async def finish_restore(
        self, call: Call, repository_id: str, restore_id: str, instance_uid: str
    ) -> Repository:
        """Makes a bare repository visible to users; returns it."""
        request = pb.FinishRestoreRequest(
            repository_id=repository_id, restore_id=restore_id, instance_uid=instance_uid
        )
        answer = await self._dump_service.FinishRestore(request, call)
        return answer.repository
