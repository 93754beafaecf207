"""DumpService: dump, restore and recovery of a repository."""

from __future__ import annotations

from tarn.core.dump import from_line
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id, parse_repository_id
from tarn.core.rules import Settings
from tarn.gate.permits import Permit, RepositoryPermit
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.repositories import repository_message
from tarn_graveler.handlers.requests import paging, require_retention
from tarn_proto.graveler.v1 import dump_service_pb2 as pb

__all__ = ["LINES_MAX", "DumpHandler"]

LINES_MAX = 500
"""Lines of one RestoreRecords."""


class DumpHandler:
    """Answers `tarn.graveler.v1.DumpService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._dumping = graveler.dumping
        self._restoring = graveler.restoring
        self._recovering = graveler.recovering
        self._page_keys = graveler.page_keys
        self._features = graveler.features

    async def ReadDump(
        self, request: pb.ReadDumpRequest, permit: RepositoryPermit
    ) -> pb.ReadDumpResponse:
        """Returns one page of a dump."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id, "DumpService.ReadDump", instance=repository.instance_uid
        )
        cursor = tokens.decode(request.page_token)
        lines, after = await self._dumping.page(repository, cursor, paging(request.page_size))
        return pb.ReadDumpResponse(
            lines=lines,
            next_page_token=tokens.encode(after) if after else "",
            repository=repository_message(repository),
        )

    async def BeginRestore(
        self, request: pb.BeginRestoreRequest, permit: Permit
    ) -> pb.BeginRestoreResponse:
        """Creates a bare repository over a namespace."""
        repository_id = parse_repository_id(request.repository_id)
        repository = await self._restoring.begin(
            repository_id,
            request.storage_namespace,
            parse_branch_id(request.default_branch_id),
            request.restore_id,
        )
        return pb.BeginRestoreResponse(repository=repository_message(repository))

    async def ReadNamespace(
        self, request: pb.ReadNamespaceRequest, permit: Permit
    ) -> pb.ReadNamespaceResponse:
        """Returns one page of the commits and notes in the namespace of a bare repository."""
        repository_id = parse_repository_id(request.repository_id)
        grant = permit.grant
        repository = await self._restoring.bare(repository_id, request.restore_id)
        tokens = await self._page_keys.tokens(
            grant.user_id, "DumpService.ReadNamespace", instance=repository.instance_uid
        )
        cursor = tokens.decode(request.page_token)
        page = await self._recovering.page(repository, cursor, paging(request.page_size))
        return pb.ReadNamespaceResponse(
            lines=page.lines,
            damaged_paths=page.damaged,
            next_page_token=tokens.encode(page.cursor) if page.cursor else "",
        )

    async def RestoreRecords(
        self, request: pb.RestoreRecordsRequest, permit: Permit
    ) -> pb.RestoreRecordsResponse:
        """Writes lines to a bare repository."""
        repository_id = parse_repository_id(request.repository_id)
        if len(request.lines) > LINES_MAX:
            text = f"{len(request.lines)} lines in one call; at most {LINES_MAX} are allowed"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="lines")
        repository = await self._restoring.bare(repository_id, request.restore_id)
        records = [from_line(line) for line in request.lines]
        for each in records:
            if isinstance(each, Settings):
                require_retention(self._features, each.retention)
        await self._restoring.write(repository, records, permit.grant.user_id)
        return pb.RestoreRecordsResponse()

    async def FinishRestore(
        self, request: pb.FinishRestoreRequest, permit: Permit
    ) -> pb.FinishRestoreResponse:
        """Makes a bare repository visible."""
        repository_id = parse_repository_id(request.repository_id)
        repository = await self._restoring.finish(
            repository_id, request.restore_id, request.instance_uid
        )
        return pb.FinishRestoreResponse(repository=repository_message(repository))
