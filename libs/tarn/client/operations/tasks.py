"""Merges and previews that the service runs in the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.operations.conflict_choices import choices_to_wire, side_to_wire
from tarn.client.paging import Listing, listing
from tarn.client.values import Choice, Side, Task
from tarn_proto.graveler.v1 import merge_service_pb2

__all__ = ["TaskOperations"]


class TaskOperations(Calls):
    """Starts, watches and cancels tasks."""

    async def start_merge(
        self,
        repository_id: str,
        branch_id: str,
        source_ref: str,
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        squash: bool = False,
        allow_empty: bool = False,
        fast_forward_only: bool = False,
        expected_commit_id: str = "",
        task_id: str = "",
    ) -> Task:
        """Starts a merge as a task; other arguments as of `merge`.

        `task_id` is from `new_task_id` of the client. After `UnknownOutcomeError`, the same call with the same id
        starts no second merge; it returns the task. Without it, Tarn chooses an id.
        """
        request = merge_service_pb2.MergeRequest(
            repository_id=repository_id,
            branch_id=branch_id,
            source_ref=source_ref,
            message=message,
            metadata=metadata,
            choices=choices_to_wire(choices),
            default_side=side_to_wire(default_side),
            squash=squash,
            allow_empty=allow_empty,
            fast_forward_only=fast_forward_only,
            expected_commit_id=expected_commit_id,
        )
        return Task.of(await self.graveler.start_merge(self.call(), request, task_id=task_id))

    async def start_preview(
        self,
        repository_id: str,
        destination_ref: str,
        source_ref: str,
        *,
        choices: Sequence[Choice] = (),
        default_side: Side | None = None,
        task_id: str = "",
    ) -> Task:
        """Starts the preview of a merge as a task; arguments as of `preview_merge`, `task_id` as of `start_merge`."""
        request = merge_service_pb2.PreviewMergeRequest(
            repository_id=repository_id,
            destination_ref=destination_ref,
            source_ref=source_ref,
            choices=choices_to_wire(choices),
            default_side=side_to_wire(default_side),
            page_size=1,
        )
        return Task.of(await self.graveler.start_preview(self.call(), request, task_id=task_id))

    async def get_task(self, repository_id: str, task_id: str) -> Task:
        """Returns one task, with its result or its error."""
        return Task.of(await self.graveler.get_task(self.call(), repository_id, task_id))

    async def wait_task(self, repository_id: str, task_id: str, *, timeout_s: float = 10.0) -> Task:
        """Returns a task once it has ended, or after `timeout_s` as it is then: look at `state.is_ended`.

        One call waits for at most 30 seconds.
        """
        timeout_ms = max(1, round(timeout_s * 1000))
        return Task.of(
            await self.graveler.wait_task(
                self.call(), repository_id, task_id, timeout_ms=timeout_ms
            )
        )

    async def cancel_task(self, repository_id: str, task_id: str) -> Task:
        """Asks for the end of a task, which may go on for some seconds; a merge that is being published is made."""
        return Task.of(await self.graveler.cancel_task(self.call(), repository_id, task_id))

    def list_tasks(
        self, repository_id: str, *, all_users: bool = False, page_size: int = PAGE_SIZE
    ) -> Listing[Task]:
        """Lists the caller's tasks in a repository, or those of all users, oldest first, without their results."""
        return listing(
            lambda token: self.graveler.list_tasks(
                self.call(),
                repository_id,
                all_users=all_users,
                page_size=page_size,
                page_token=token,
            ),
            lambda page: map(Task.of, page.tasks),
        )
