"""The resources that a front moves objects with, and the callers for whom it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from tarn.aio.task_set import TaskSet
from tarn.block.port import BlockStore
from tarn.client.graveler import GravelerClient
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Reason
from tarn.objects.key_locks import KeyLocks
from tarn.objects.repository_cache import CachedRepository, RepositoryCache
from tarn.rpc.wire.call import Call

__all__ = ["Caller", "ObjectBackend", "ObjectBounds", "VIEW_MOVED"]

_NO_NAMES: Final[frozenset[str]] = frozenset()

VIEW_MOVED: Final = frozenset({Reason.BUCKET_MOVED, Reason.BUCKET_NOT_FOUND})
"""Reasons of refusals of a call whose view (`Caller.view`) shows something else by now. The call did nothing."""


class Caller(Protocol):
    """A request of a client, and whoever sent it."""

    @property
    def request_id(self) -> str:
        """Names the request in every service and every log line."""
        ...

    @property
    def caller_token(self) -> str:
        """Proves who the caller is; a secret."""
        ...

    @property
    def began(self) -> float:
        """When the front received the request, on the monotonic clock in seconds."""
        ...

    @property
    def view(self) -> str:
        """The bucket view through which the request came, for `Call.bucket`; empty for none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectBounds:
    """The limits of what moves objects.

    Attributes:
        call_timeout_s: time limit of one call to graveler or auth.
        complete_timeout_s: time limit for graveler to stage a completed upload.
        small_body_bytes: bodies up to this size are held in memory and stored in one piece.
        removals_max: number of blocks that may be removed after their answers concurrently; further
            answers wait for their removal.
    """

    call_timeout_s: float = 10.0
    complete_timeout_s: float = 60.0
    small_body_bytes: int = 64 * 1024
    removals_max: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectBackend:
    """The shared resources of all operations on objects, which keep no state of their own.

    Attributes:
        own_token: returns the caller token of this front as a service, which proves that it made an address.
        kept_token: the same if it is known already; empty: it is not.
        locks: locks of keys that are written conditionally.
        removals: blocks of refused writes that are being removed after the answers. The front drains them at its end.
    """

    graveler: GravelerClient
    blocks: BlockStore
    repositories: RepositoryCache
    clock: Clock
    ids: IdSource
    own_token: Callable[[Call], Awaitable[str]]
    kept_token: Callable[[], str] = str
    bounds: ObjectBounds = field(default_factory=ObjectBounds)
    locks: KeyLocks = field(default_factory=KeyLocks)
    removals: TaskSet = field(default_factory=TaskSet)

    def call(self, caller: Caller, timeout_s: float = 0.0) -> Call:
        """Returns the context of one call to graveler. Its time begins now: the transfer of a body is not
        bounded, so a request as a whole has no deadline."""
        deadline = self.clock.monotonic() + (timeout_s or self.bounds.call_timeout_s)
        return Call(caller.request_id, caller.caller_token, deadline, bucket=caller.view)

    async def repository(self, caller: Caller, repository_id: str) -> CachedRepository:
        """Returns a repository, possibly from the cache, before any byte of a body or a block is moved.

        Raises:
            TarnError: as `RepositoryCache.get`.
        """
        kept = self.repositories.kept(repository_id)
        if kept is not None:
            return kept
        return await self.repositories.get(self.opening_call(caller), repository_id)

    async def proven_call(self, caller: Caller, timeout_s: float = 0.0) -> Call:
        """Returns the context of a call that only certain services may make for a user (`Rule.through`).

        Raises:
            TarnError: the errors of auth.
        """
        deadline = self.clock.monotonic() + (timeout_s or self.bounds.call_timeout_s)
        proof = self.kept_token() or await self.own_token(self.call(caller, timeout_s))
        return Call(caller.request_id, caller.caller_token, deadline, _NO_NAMES, proof, caller.view)

    def opening_call(self, caller: Caller, timeout_s: float = 0.0) -> Call:
        """Returns the context of calls before any byte of a body or a block is moved. Their time began with the
        request: authentication and all of them together take no longer than one call may."""
        deadline = caller.began + (timeout_s or self.bounds.call_timeout_s)
        return Call(caller.request_id, caller.caller_token, deadline, bucket=caller.view)
