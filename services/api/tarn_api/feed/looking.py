"""Looks at a branch through graveler's rpcs: changes of its head, and counts of what is uncommitted. Each look is
bounded, whatever happened since the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tarn.client.graveler import GravelerClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_api.feed.counting import FOLDERS_MAX
from tarn_api.feed.events import head_event, time_us_of
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import diff_service_pb2 as diff_pb
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb
from tarn_rest.schemas import BranchEvent

__all__ = ["HEADS_MAX", "BranchView", "Heads"]

HEADS_MAX: Final = 20
"""Changes of the head on one page."""
_PAGES_MAX: Final = 5
_COUNTED_MAX: Final = 3
"""Changes of the head of one look whose contents are counted; a branch with more commits is told without counts."""
_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Heads:
    """Changes of a head.

    Attributes:
        changes: the oldest one first.
        is_whole: whether none is missing: neither behind the last page, nor expired.
    """

    changes: list[pb.HeadChange]
    is_whole: bool


class BranchView:
    """One branch, as its callers may read it.

    Args:
        graveler: metadata.
        repository: the repository.
        branch: the branch.
    """

    def __init__(self, graveler: GravelerClient, repository: str, branch: str) -> None:
        self._graveler = graveler
        self._at = repository, branch

    async def check(self, call: Call) -> None:
        """Has graveler refuse a caller who may not read the branch, and a branch that never was.

        Raises:
            TarnError: as `ListReflog`.
        """
        await self._graveler.list_reflog(call, *self._at, page_size=1)

    async def heads(self, call: Call, since_us: int | None) -> Heads:
        """Returns the changes of the head after a time; without one the newest ones.

        Raises:
            TarnError: as `ListReflog`.
        """
        found: list[pb.HeadChange] = []
        token = ""
        for _ in range(1 if since_us is None else _PAGES_MAX):
            page = await self._graveler.list_reflog(
                call, *self._at, page_size=HEADS_MAX, page_token=token
            )
            for each in page.entries:
                if since_us is not None and time_us_of(each) <= since_us:
                    return Heads(found[::-1], is_whole=True)
                found.append(each)
            token = page.next_page_token
            if not token:
                break
        # The first entry of a whole reflog is that of a creation.
        is_whole = not token and bool(found) and not found[-1].old_commit_id
        return Heads(found[::-1], is_whole)

    async def events(self, call: Call, changes: Sequence[pb.HeadChange]) -> list[BranchEvent]:
        """Returns the events of changes of the head, with messages, and with counts if they are few."""
        counts = len(changes) <= _COUNTED_MAX
        return [await self._event(call, each, counts=counts) for each in changes]

    async def _event(self, call: Call, change: pb.HeadChange, *, counts: bool) -> BranchEvent:
        commit, found = None, diff_pb.SummarizeDiffResponse()
        if change.new_commit_id:
            commit = await self._commit(call, change.new_commit_id)
            if commit is not None and counts and change.old_commit_id:
                found = await self._counts(call, change)
        return head_event(change, commit, found)

    async def _commit(self, call: Call, commit_id: str) -> commit_pb.Commit | None:
        try:
            return await self._graveler.get_commit(call, self._at[0], commit_id)
        except TarnError as error:
            if error.kind in (Kind.NOT_FOUND, Kind.DENIED):
                return None  # a change may be told without its message
            raise

    async def _counts(self, call: Call, change: pb.HeadChange) -> diff_pb.SummarizeDiffResponse:
        sides = change.old_commit_id, change.new_commit_id
        try:
            return await self._graveler.summarize_diff(
                call, self._at[0], *sides, delimiter="/", page_size=_LINES
            )
        except TarnError as error:
            if error.kind in (Kind.NOT_FOUND, Kind.DENIED, Kind.FAILED_PRECONDITION):
                return diff_pb.SummarizeDiffResponse()  # likewise
            raise

    async def uncommitted(
        self, call: Call, token: str
    ) -> diff_pb.SummarizeUncommittedResponse | None:
        """Returns a page of counts of uncommitted changes; None: the pass must begin anew, because the branch moved or
        is gone."""
        try:
            return await self._graveler.summarize_uncommitted(
                call, *self._at, delimiter="/", page_size=FOLDERS_MAX, page_token=token
            )
        except TarnError as error:
            if error.reason in (Reason.REF_MOVED, Reason.BRANCH_NOT_FOUND) or (
                token and error.kind is Kind.INVALID
            ):
                return None  # a token is one user's, and another one may look now
            raise
