"""Client of graveler's operations on the settings of a repository: rules, metadata and default branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import settings_service_pb2 as pb
from tarn_proto.graveler.v1.settings_service_rpc import SettingsServiceClient

__all__ = ["SettingsClient"]


class SettingsClient(RpcClient):
    """Reads and changes settings. Methods raise the `TarnError` that graveler raised.

    A change with the ETag of settings that were replaced since fails with SETTINGS_CHANGED.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._settings_service = SettingsServiceClient(transport)

    async def get_settings(self, call: Call, repository_id: str) -> pb.GetSettingsResponse:
        """Returns `protections`, `hidden_patterns`, `read_only`, `metadata`, `etag` and `default_branch_id`."""
        request = pb.GetSettingsRequest(repository_id=repository_id)
        return await self._settings_service.GetSettings(request, call)

    async def set_rules(
        self,
        call: Call,
        repository_id: str,
        *,
        protections: Iterable[pb.Protection],
        hidden_patterns: Iterable[str],
        if_match: str,
    ) -> str:
        """Replaces all protections and hidden patterns; returns the new ETag.

        For writes, other replicas apply the rules at most five seconds later; for all other changes, at once.
        """
        request = pb.SetRulesRequest(
            repository_id=repository_id,
            protections=protections,
            hidden_patterns=hidden_patterns,
            if_match=if_match,
        )
        answer = await self._settings_service.SetRules(request, call)
        return answer.etag

    async def set_read_only(
        self, call: Call, repository_id: str, read_only: bool, *, if_match: str = ""
    ) -> str:
        """Makes a repository read-only, or writable again; returns the new ETag. Without `if_match`, whatever
        the settings are.
        """
        request = pb.SetReadOnlyRequest(
            repository_id=repository_id, read_only=read_only, if_match=if_match
        )
        answer = await self._settings_service.SetReadOnly(request, call)
        return answer.etag

    async def get_retention(self, call: Call, repository_id: str) -> pb.GetRetentionResponse:
        """Returns the retention rules of a repository as JSON, and the ETag of its settings."""
        request = pb.GetRetentionRequest(repository_id=repository_id)
        return await self._settings_service.GetRetention(request, call)

    async def set_retention(
        self, call: Call, repository_id: str, rules_json: str, *, if_match: str
    ) -> str:
        """Replaces the retention rules; returns the new ETag. The next mark of a collection applies them."""
        request = pb.SetRetentionRequest(
            repository_id=repository_id, rules_json=rules_json, if_match=if_match
        )
        answer = await self._settings_service.SetRetention(request, call)
        return answer.etag

    async def set_metadata(
        self, call: Call, repository_id: str, metadata: Mapping[str, str], *, if_match: str
    ) -> str:
        """Replaces all metadata; returns the new ETag."""
        request = pb.SetMetadataRequest(
            repository_id=repository_id, metadata=metadata, if_match=if_match
        )
        answer = await self._settings_service.SetMetadata(request, call)
        return answer.etag

    async def set_default_branch(
        self, call: Call, repository_id: str, branch_id: str, *, expected_branch_id: str = ""
    ) -> str:
        """Makes an existing branch the default branch; returns the former one.

        `expected_branch_id` is the present default branch; empty for any.
        """
        request = pb.SetDefaultBranchRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            expected_branch_id=expected_branch_id,
        )
        answer = await self._settings_service.SetDefaultBranch(request, call)
        return answer.former_branch_id
