"""The blocking client: it runs the asynchronous one on an event loop in a thread of its own.

Each method is one line, `Blocking(…)` or `BlockingListing(…)` of the asynchronous method; name, arguments,
types and documentation come from there.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from tarn.client.async_client import AsyncClient
from tarn.client.operations import Operations
from tarn.client.paging import Listing
from tarn.core.clock import Clock, IdSource
from tarn.rpc.process.tls import TlsFiles

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")

_CLOSED = "the client has been closed"
_CLOSE_SECONDS = 5.0


class _LoopThread:
    """An event loop that runs in a thread until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon: a program that forgets to close its client can still end.
        self._thread = threading.Thread(target=self._loop.run_forever, name="tarn", daemon=True)
        self._lock = threading.Lock()
        self._is_open = True
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine and returns its result; cancels it if this thread is interrupted.

        Raises:
            RuntimeError: the loop is closed, or was closed meanwhile, or this is its own thread.
        """
        try:
            if threading.current_thread() is self._thread:
                raise RuntimeError("a blocking call in the client's own event loop waits for ever")
            with self._lock:
                if not self._is_open:
                    raise RuntimeError(_CLOSED)
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise
        return self._result(future)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Runs `last`, cancels everything else, and ends the loop and its thread. Idempotent."""
        with self._lock:
            if not self._is_open:
                last.close()
                return
            self._is_open = False
            future = asyncio.run_coroutine_threadsafe(self._finish(last), self._loop)
        try:
            self._result(future)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _finish(self, last: Coroutine[Any, Any, None]) -> None:
        await last
        # Another thread may still wait for a call that pauses between two attempts.
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        if others:
            await asyncio.wait(others, timeout=_CLOSE_SECONDS)
        await self._loop.shutdown_asyncgens()

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            raise RuntimeError(_CLOSED) from None
        except BaseException:
            future.cancel()
            raise


class Blocking(Generic[P, T]):
    """A method that waits for the asynchronous method of the same name."""

    def __init__(
        self, method: Callable[Concatenate[Operations, P], Coroutine[Any, Any, T]]
    ) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method  # `inspect.signature` shows its arguments

    @overload
    def __get__(self, client: None, owner: type[Client]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, T]: ...
    def __get__(self, client: Client | None, owner: type[Client]) -> Self | Callable[P, T]:
        if client is None:
            return self

        @functools.wraps(self._method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.run(lambda tarn: self._method(tarn, *args, **kwargs))

        return call


class BlockingListing(Generic[P, T]):
    """A method that returns the items of the asynchronous listing of the same name."""

    def __init__(self, method: Callable[Concatenate[Operations, P], Listing[T]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__
        self.__wrapped__ = method  # `inspect.signature` shows its arguments

    @overload
    def __get__(self, client: None, owner: type[Client]) -> Self: ...
    @overload
    def __get__(self, client: Client, owner: type[Client]) -> Callable[P, Iterator[T]]: ...
    def __get__(
        self, client: Client | None, owner: type[Client]
    ) -> Self | Callable[P, Iterator[T]]:
        if client is None:
            return self

        @functools.wraps(self._method)
        def items(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return _Items(client, lambda tarn: self._method(tarn, *args, **kwargs))

        return items


class _Items(Iterator[T], Generic[T]):
    """The items of a listing. Not a generator, which would end at an error as if nothing followed."""

    def __init__(self, client: Client, begin: Callable[[AsyncClient], Listing[T]]) -> None:
        self._client = client
        self._begin = begin
        self._listing: Listing[T] | None = None
        self._items: deque[T] = deque()

    def __next__(self) -> T:
        """Returns the next item; reads a page if there is none."""
        while not self._items:
            page = self._client.run(self._next_page)
            if page is None:
                raise StopIteration
            self._items.extend(page)
        return self._items.popleft()

    async def _next_page(self, tarn: AsyncClient) -> list[T] | None:
        if self._listing is None:
            self._listing = self._begin(tarn)
        return await self._listing.next_page()


class Client:
    """A client of Tarn for programs that do not use asyncio. Safe to use from several threads.

    It does what `AsyncClient` does; the arguments are the same. Listings are iterators. Make it after a fork, not
    before, and close it: it has a thread of its own.
    """

    def __init__(
        self,
        addresses: str | Sequence[str] = "127.0.0.1:8102",
        *,
        access_key_id: str = "",
        secret_access_key: str = "",
        session_token: str = "",
        auth_addresses: str | Sequence[str] = (),
        tls: TlsFiles | None = None,
        timeout_s: float = 60.0,
        name: str = "client",
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._client = AsyncClient(
            addresses,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            auth_addresses=auth_addresses,
            tls=tls,
            timeout_s=timeout_s,
            name=name,
            clock=clock,
            ids=ids,
        )
        self._loop = _LoopThread()

    def run(self, work: Callable[[AsyncClient], Coroutine[Any, Any, T]]) -> T:
        """Runs asynchronous work with the asynchronous client, for several calls at a time or rpcs without a method.

        Raises:
            RuntimeError: this client has been closed.
        """
        return self._loop.run(work(self._client))

    def log_in(self) -> str:
        """See `AsyncClient.log_in`."""
        return self.run(AsyncClient.log_in)

    def new_task_id(self) -> str:
        """See `AsyncClient.new_task_id`."""
        return self._client.new_task_id()

    def with_timeout(self, seconds: float) -> Self:
        """See `AsyncClient.with_timeout`."""
        other = copy.copy(self)
        other._client = self._client.with_timeout(seconds)  # noqa: SLF001 - of this class
        return other

    def close(self) -> None:
        """Ends calls in flight, closes the connections and ends the thread. Idempotent.

        Calls of other threads fail: with `RuntimeError`, `UnavailableError` or `UnknownOutcomeError`.
        """
        self._loop.close(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    get_caller = Blocking(Operations.get_caller)

    create_repository = Blocking(Operations.create_repository)
    get_repository = Blocking(Operations.get_repository)
    list_repositories = BlockingListing(Operations.list_repositories)
    delete_repository = Blocking(Operations.delete_repository)

    create_bucket_view = Blocking(Operations.create_bucket_view)
    get_bucket_view = Blocking(Operations.get_bucket_view)
    list_bucket_views = BlockingListing(Operations.list_bucket_views)
    set_bucket_view_public_read = Blocking(Operations.set_bucket_view_public_read)
    point_bucket_view = Blocking(Operations.point_bucket_view)
    delete_bucket_view = Blocking(Operations.delete_bucket_view)
    get_bucket_cors = Blocking(Operations.get_bucket_cors)
    set_bucket_cors = Blocking(Operations.set_bucket_cors)

    create_branch = Blocking(Operations.create_branch)
    set_branch_expiry = Blocking(Operations.set_branch_expiry)
    get_branch = Blocking(Operations.get_branch)
    list_branches = BlockingListing(Operations.list_branches)
    delete_branch = Blocking(Operations.delete_branch)
    reset_branch = Blocking(Operations.reset_branch)
    move_branch = Blocking(Operations.move_branch)

    create_tag = Blocking(Operations.create_tag)
    get_tag = Blocking(Operations.get_tag)
    list_tags = BlockingListing(Operations.list_tags)
    delete_tag = Blocking(Operations.delete_tag)

    create_commit = Blocking(Operations.create_commit)
    get_commit = Blocking(Operations.get_commit)
    list_commits = BlockingListing(Operations.list_commits)
    diff_refs = BlockingListing(Operations.diff_refs)
    diff_uncommitted = BlockingListing(Operations.diff_uncommitted)

    merge = Blocking(Operations.merge)
    preview_merge = Blocking(Operations.preview_merge)
    find_merge_base = Blocking(Operations.find_merge_base)
    list_conflicts = BlockingListing(Operations.list_conflicts)
    revert = Blocking(Operations.revert)
    revert_range = Blocking(Operations.revert_range)
    cherry_pick = Blocking(Operations.cherry_pick)
    create_merge_branch = Blocking(Operations.create_merge_branch)

    list_reflog = BlockingListing(Operations.list_reflog)
    list_deleted_branches = BlockingListing(Operations.list_deleted_branches)
    restore_branch = Blocking(Operations.restore_branch)
    annotate = BlockingListing(Operations.annotate)
    diff_names = BlockingListing(Operations.diff_names)
    diff_uncommitted_names = BlockingListing(Operations.diff_uncommitted_names)
    summarize_diff = Blocking(Operations.summarize_diff)
    summarize_uncommitted = Blocking(Operations.summarize_uncommitted)

    get_settings = Blocking(Operations.get_settings)
    set_rules = Blocking(Operations.set_rules)
    set_read_only = Blocking(Operations.set_read_only)
    set_metadata = Blocking(Operations.set_metadata)
    set_default_branch = Blocking(Operations.set_default_branch)

    start_merge = Blocking(Operations.start_merge)
    start_preview = Blocking(Operations.start_preview)
    get_task = Blocking(Operations.get_task)
    wait_task = Blocking(Operations.wait_task)
    cancel_task = Blocking(Operations.cancel_task)
    list_tasks = BlockingListing(Operations.list_tasks)

    compact_branch = Blocking(Operations.compact_branch)
    get_staging_statistics = Blocking(Operations.get_staging_statistics)

    get_object = Blocking(Operations.get_object)
    list_objects = BlockingListing(Operations.list_objects)
    delete_object = Blocking(Operations.delete_object)
    delete_objects = Blocking(Operations.delete_objects)
