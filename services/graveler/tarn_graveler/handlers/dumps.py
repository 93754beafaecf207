"""DumpService: dump, restore and recovery of a repository."""

from __future__ import annotations

from tarn.core.dump import from_line
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id, parse_repository_id
from tarn.rpc.rules import Rule, rules_of
from tarn.rpc.wire.call import Call
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.repositories import repository_message
from tarn_graveler.handlers.requests import AccessGuard, paging
from tarn_proto.graveler.v1 import dump_service_pb2 as pb

__all__ = ["LINES_MAX", "DumpHandler"]

LINES_MAX = 500
"""Lines of one RestoreRecords."""

_RULES = rules_of(pb.DESCRIPTOR.services_by_name["DumpService"])


class DumpHandler:
    """Answers `tarn.graveler.v1.DumpService`."""

    def __init__(self, guard: AccessGuard, graveler: Graveler) -> None:
        self._guard = guard
        self._dumping = graveler.dumping
        self._restoring = graveler.restoring
        self._recovering = graveler.recovering
        self._page_keys = graveler.page_keys

    async def ReadDump(self, request: pb.ReadDumpRequest, call: Call) -> pb.ReadDumpResponse:
        """Returns one page of a dump."""
        rule = _RULES["ReadDump"]
        repository, grant = await self._guard.enter_repository(call, rule, request)
        tokens = await self._page_keys.tokens(
            grant.user_id, rule.name, instance=repository.instance_uid
        )
        cursor = tokens.decode(request.page_token)
        lines, after = await self._dumping.page(repository, cursor, paging(request.page_size))
        return pb.ReadDumpResponse(
            lines=lines,
            next_page_token=tokens.encode(after) if after else "",
            repository=repository_message(repository),
        )

    async def BeginRestore(
        self, request: pb.BeginRestoreRequest, call: Call
    ) -> pb.BeginRestoreResponse:
        """Creates a bare repository over a namespace."""
        repository_id = parse_repository_id(request.repository_id)
        rule = _RULES["BeginRestore"]
        await self._guard.enter(call, rule, rule.resource.of(request))
        attach = rule.also["attach"]
        await self._guard.enter(call, attach, attach.resource.of(request))
        repository = await self._restoring.begin(
            repository_id,
            request.storage_namespace,
            parse_branch_id(request.default_branch_id),
            request.restore_id,
        )
        return pb.BeginRestoreResponse(repository=repository_message(repository))

    async def ReadNamespace(
        self, request: pb.ReadNamespaceRequest, call: Call
    ) -> pb.ReadNamespaceResponse:
        """Returns one page of the commits and notes in the namespace of a bare repository."""
        repository_id = parse_repository_id(request.repository_id)
        rule = _RULES["ReadNamespace"]
        grant = await self._guard.enter(call, rule, rule.resource.of(request))
        repository = await self._restoring.bare(repository_id, request.restore_id)
        tokens = await self._page_keys.tokens(
            grant.user_id, rule.name, instance=repository.instance_uid
        )
        cursor = tokens.decode(request.page_token)
        page = await self._recovering.page(repository, cursor, paging(request.page_size))
        return pb.ReadNamespaceResponse(
            lines=page.lines,
            damaged_paths=page.damaged,
            next_page_token=tokens.encode(page.cursor) if page.cursor else "",
        )

    async def RestoreRecords(
        self, request: pb.RestoreRecordsRequest, call: Call
    ) -> pb.RestoreRecordsResponse:
        """Writes lines to a bare repository."""
        repository_id = parse_repository_id(request.repository_id)
        user_id = await self._enter(_RULES["RestoreRecords"], request, call)
        if len(request.lines) > LINES_MAX:
            text = f"{len(request.lines)} lines in one call; at most {LINES_MAX} are allowed"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="lines")
        repository = await self._restoring.bare(repository_id, request.restore_id)
        records = [from_line(line) for line in request.lines]
        await self._restoring.write(repository, records, user_id)
        return pb.RestoreRecordsResponse()

    async def FinishRestore(
        self, request: pb.FinishRestoreRequest, call: Call
    ) -> pb.FinishRestoreResponse:
        """Makes a bare repository visible."""
        repository_id = parse_repository_id(request.repository_id)
        await self._enter(_RULES["FinishRestore"], request, call)
        repository = await self._restoring.finish(
            repository_id, request.restore_id, request.instance_uid
        )
        return pb.FinishRestoreResponse(repository=repository_message(repository))

    async def _enter(
        self, rule: Rule, request: pb.RestoreRecordsRequest | pb.FinishRestoreRequest, call: Call
    ) -> str:
        """Checks the caller, before it learns whether the repository exists; returns its name."""
        grant = await self._guard.enter(call, rule, rule.resource.of(request))
        return grant.user_id
