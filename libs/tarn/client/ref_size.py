"""The size of a ref: what its commit has, and what the uncommitted changes of a branch add to it and take from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarn.client.graveler import GravelerClient
from tarn.rpc.wire.call import Call

__all__ = ["CALLS_MAX", "RefSize", "size_of_branch", "size_of_ref"]

CALLS_MAX: Final = 10
"""Calls that count uncommitted changes."""


@dataclass(frozen=True, slots=True)
class RefSize:
    """Numbers of objects and bytes.

    Attributes:
        commit_id: the commit of the ref.
        committed_count: its objects.
        committed_bytes: sum of their sizes.
        object_count: with the uncommitted changes that were counted.
        object_bytes: likewise.
        is_complete: whether all uncommitted changes were counted.
    """

    commit_id: str
    committed_count: int
    committed_bytes: int
    object_count: int
    object_bytes: int
    is_complete: bool = True


async def size_of_ref(
    graveler: GravelerClient, call: Call, repository_id: str, ref: str
) -> RefSize:
    """Returns the size of the commit of a ref. Raises graveler's `TarnError`."""
    found = await graveler.measure_ref(call, repository_id, ref)
    count, size = found.object_count, found.object_bytes
    return RefSize(found.commit_id, count, size, count, size)


async def size_of_branch(
    graveler: GravelerClient, call: Call, repository_id: str, branch_id: str
) -> RefSize:
    """Returns the size of a branch with its uncommitted changes: those that `CALLS_MAX` calls count.

    Raises:
        TarnError: graveler's; CONFLICT, REF_MOVED: the branch got another head meanwhile.
    """
    count = size = calls = 0
    token = ""
    while True:
        page = await graveler.summarize_uncommitted(
            call, repository_id, branch_id, page_token=token
        )
        calls += 1
        count += page.counts.added_count - page.counts.removed_count
        size += page.counts.added_bytes - page.counts.removed_bytes
        token = page.next_page_token
        if not token or calls >= CALLS_MAX:
            break
    # Of the head with which the changes were compared, not of what the branch has become meanwhile.
    head = await size_of_ref(graveler, call, repository_id, page.commit_id)
    return RefSize(
        head.commit_id,
        head.committed_count,
        head.committed_bytes,
        head.committed_count + count,
        head.committed_bytes + size,
        is_complete=not token,
    )
