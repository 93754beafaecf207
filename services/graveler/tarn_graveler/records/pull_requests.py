"""The records of pull requests in the KV: one register for each, one for the index, and a row for each event
(docs/design/pull-requests.md).

The index gives out numbers, and lets no two open requests have the same branches. A request is entered there before its
record says `open`, and removed after its record says something else; whoever finds an entry whose record is not open
settles that record before removing the entry, so that its own writer fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.pull_request import (
    EVENTS_MAX,
    NO_PULLS,
    TEXT_BYTES_MAX,
    EventKind,
    OpenPull,
    PullEvent,
    PullIndex,
    PullRequest,
    PullState,
    pull_not_found,
    void_pull,
)
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.paging import rows_of
from tarn.kv.port import Kv, Versioned
from tarn.kv.pull_records import (
    decode_pull,
    decode_pull_event,
    decode_pull_index,
    encode_pull,
    encode_pull_event,
    encode_pull_index,
)
from tarn.kv.records import Repository
from tarn.kv.register import Register, unknown_if, write_once
from tarn_graveler.records.repositories import Repositories

__all__ = ["PullPage", "PullRequests", "Wanted", "pull_exists"]

_SCAN: Final = 100
"""Records of one read; one has a kilobyte as a rule, 32 at most."""
_EXAMINED_MAX: Final = 2000
"""Records that one page looks at."""
_TRIES: Final = 8

_log = structlog.get_logger()

Wanted = Callable[[PullRequest], bool]
"""Whether a list shows a request."""


@dataclass(frozen=True, slots=True)
class PullPage:
    """Some pull requests, newest first.

    Attributes:
        before: the next page has only smaller numbers than this; 0: there is none.
    """

    pulls: list[PullRequest]
    before: int


def pull_exists(pull_id: str) -> TarnError:
    """Returns the error for a second open request with the same branches."""
    text = f"pull request {pull_id} with the same source and destination is open; continue there, or close it first"
    return TarnError(Kind.ALREADY_EXISTS, Reason.PULL_REQUEST_EXISTS, text, pull_request=pull_id)


class PullRequests:
    """Reads and changes the pull requests of repositories."""

    def __init__(self, kv: Kv, repositories: Repositories, clock: Clock, ids: IdSource) -> None:
        self._kv = kv
        self._repositories = repositories
        self._clock = clock
        self._ids = ids

    # ---- one request

    async def get(
        self, repository: Repository, number: int, *, settle: bool = False
    ) -> PullRequest:
        """Returns a request, by a read that is sent now.

        Raises:
            TarnError: PULL_REQUEST_NOT_FOUND.
        """
        pull = await self._register(repository, number).read(settle=settle)
        if pull is None or pull.state is PullState.VOID:
            raise pull_not_found(str(number))
        return pull

    async def create(self, repository: Repository, new: PullRequest) -> PullRequest:
        """Stores a new open request; returns it with its number.

        Args:
            repository: the repository; read afresh first, so that nothing is written for a deleted one.
            new: the request, with any number and ids.

        Raises:
            TarnError: PULL_REQUEST_EXISTS; QUOTA_EXCEEDED; REPOSITORY_NOT_FOUND; OUTCOME_UNKNOWN.
        """
        await self._repositories.require(repository)
        for _ in range(_TRIES):
            create_id = self._ids.nonce()
            number = await self._enter(repository, new.pair, create_id, 0)
            now_us = self._clock.now_us()
            pull = replace(
                new,
                number=number,
                create_id=create_id,
                change_id=create_id,
                create_time_us=now_us,
                update_time_us=now_us,
            )
            written = await self._register(repository, number).change(
                lambda found, pull=pull: found or pull  # type: ignore[misc]
            )
            assert written is not None, "it was there, or was written"
            if written.create_id == create_id and written.state is not PullState.VOID:
                return written
            # Another creation took this one for given up. It made its own request, or was given up itself.
        raise _too_often(repository)

    async def change(
        self,
        repository: Repository,
        number: int,
        decide: Callable[[PullRequest], PullRequest],
        event: PullEvent | None = None,
        *,
        always: bool = False,
    ) -> tuple[PullRequest, int]:
        """Changes a request by compare-and-set, and adds what happened; returns the record, and the event's sequence.

        Args:
            repository: the repository.
            number: the request.
            decide: returns the next record, or the same one if there is nothing to do; called for each attempt.
            event: what happened; not written if there was nothing to do.
            always: whether it is possible although the request has as many events as it may have.

        Raises:
            TarnError: PULL_REQUEST_NOT_FOUND; QUOTA_EXCEEDED: too many events, or too much text; as `decide`;
                UNAVAILABLE; OUTCOME_UNKNOWN.
        """
        change_id = self._ids.nonce()

        def decided(before: PullRequest | None) -> PullRequest:
            if before is None or before.state is PullState.VOID:
                raise pull_not_found(str(number))
            after = decide(before)
            if event is not None and (is_comment or after != before):
                after = _with_event(after, event, always=always)
            if after == before:
                return before
            return replace(after, change_id=change_id, update_time_us=self._clock.now_us())

        # A comment changes nothing but the counts.
        is_comment = event is not None and event.kind is EventKind.COMMENT
        changed = await self._register(repository, number).change(
            decided, lambda now: now is not None and now.change_id == change_id
        )
        assert changed is not None, "`decided` refuses a missing request"
        if event is None or changed.change_id != change_id:
            return changed, 0
        sequence = changed.event_count
        key = RepositoryKeys.pull_event(number, sequence)
        with unknown_if(not is_comment):
            await write_once(
                self._kv,
                self._repositories.keys_of(repository).pulls,
                key,
                lambda: encode_pull_event(event),
                f"an event of pull request {number}",
            )
        return changed, sequence

    def _register(self, repository: Repository, number: int) -> Register[PullRequest | None]:
        return Register(
            self._kv,
            self._repositories.keys_of(repository).pulls,
            RepositoryKeys.pull(number),
            lambda value: None if value is None else decode_pull(value),
            lambda pull: None if pull is None else encode_pull(pull),
            f"pull request {number} of repository {repository.repository_id}",
        )

    # ---- opening and closing

    async def reopen(
        self,
        repository: Repository,
        number: int,
        decide: Callable[[PullRequest], PullRequest],
        event: PullEvent,
    ) -> PullRequest:
        """Opens a closed request again.

        Args:
            repository: the repository.
            number: the request.
            decide: as of `change`; opens it.
            event: what happened.

        Raises:
            TarnError: PULL_REQUEST_EXISTS: another open one has its branches; as `change`.
        """
        for _ in range(_TRIES):
            # Read before the entry is made: whoever removes the entry changes the record first, so this one fails.
            pull = await self.get(repository, number, settle=True)
            seen, open_id = pull.change_id, self._ids.nonce()
            await self._enter(repository, pull.pair, open_id, number)

            def decided(now: PullRequest, seen: bytes = seen) -> PullRequest:
                return decide(now) if now.change_id == seen else now

            changed, _ = await self.change(repository, number, decided, event)
            if changed.state is PullState.OPEN:
                return changed
            await self._index(repository).change(
                lambda now, gone=open_id: now.without([gone])  # type: ignore[misc]
            )
        raise _too_often(repository)

    async def leave(self, repository: Repository, pull: PullRequest) -> None:
        """Removes a request that is not open any more from the index. It need not succeed: others do it later."""

        def decide(index: PullIndex) -> PullIndex:
            gone = [each.open_id for each in index.open if each.number == pull.number]
            return index.without(gone) if gone else index

        try:
            await self._index(repository).change(decide)
        except TarnError as error:
            _log.warning("a pull request stays in the index", error=error.message)

    async def _enter(self, repository: Repository, pair: bytes, open_id: bytes, number: int) -> int:
        """Enters a request into the index; returns its number: a new one for 0.

        Raises:
            TarnError: PULL_REQUEST_EXISTS; QUOTA_EXCEEDED.
        """
        for _ in range(_TRIES):
            index = await self._index(repository).read()
            settled = []
            if (rival := index.of_pair(pair)) is not None:
                if await self._is_over(repository, rival):
                    settled.append(rival.open_id)
                elif rival.number == number:
                    return number  # it is open already
                else:
                    raise pull_exists(str(rival.number))

            def decide(now: PullIndex, settled: Sequence[bytes] = settled) -> PullIndex:
                left = now.without(settled)
                if left.of_pair(pair) is not None:
                    return now  # another one came between; look at it
                return left.with_open(OpenPull(number or now.last_number + 1, pair, open_id))

            def holds(now: PullIndex) -> bool:
                return any(each.open_id == open_id for each in now.open)

            try:
                index = await self._index(repository).change(decide)
            except TarnError as error:
                if error.reason is not Reason.QUOTA_EXCEEDED or not await self._tidy(repository):
                    raise
                continue
            entry = next((each for each in index.open if each.open_id == open_id), None)
            if entry is not None:
                return entry.number
        raise _too_often(repository)

    async def _is_over(self, repository: Repository, entry: OpenPull) -> bool:
        """Whether a request of the index is not open, and cannot be opened by whoever entered it."""

        def decide(found: PullRequest | None) -> PullRequest | None:
            if found is None:
                return void_pull(entry)
            if found.state is PullState.OPEN or found.state is PullState.VOID:
                return found
            # A new id: one who is about to open it finds another version than the one that was read.
            return replace(found, change_id=nonce)

        nonce = self._ids.nonce()
        settled = await self._register(repository, entry.number).change(decide)
        return settled is None or settled.state is not PullState.OPEN

    async def _tidy(self, repository: Repository) -> bool:
        """Removes entries whose requests are not open; returns whether there were any."""
        index = await self._index(repository).read()
        gone = [each.open_id for each in index.open if await self._is_over(repository, each)]
        if gone:
            await self._index(repository).change(lambda now: now.without(gone))
        return bool(gone)

    def _index(self, repository: Repository) -> Register[PullIndex]:
        return Register(
            self._kv,
            self._repositories.keys_of(repository).pulls,
            RepositoryKeys.PULL_INDEX,
            lambda value: NO_PULLS if value is None else decode_pull_index(value),
            encode_pull_index,
            f"the index of pull requests of repository {repository.repository_id}",
        )

    # ---- lists

    async def page(
        self, repository: Repository, wanted: Wanted, before: int, limit: int, *, open_only: bool
    ) -> PullPage:
        """Returns a page of requests, newest first; it may be short, and more may follow.

        Args:
            repository: the repository.
            wanted: which requests to return.
            before: only smaller numbers; 0 for all.
            limit: most requests.
            open_only: whether `wanted` wants open ones only, which are found by the index.
        """
        found: list[PullRequest] = []
        examined = 0
        source = self._open(repository, before) if open_only else self._all(repository, before)
        async for pull in source:
            examined += 1
            if pull.state is not PullState.VOID and wanted(pull):
                found.append(pull)
            if len(found) == limit or examined == _EXAMINED_MAX:
                return PullPage(found, pull.number)
        return PullPage(found, 0)

    async def _all(self, repository: Repository, before: int) -> AsyncIterator[PullRequest]:
        prefix = RepositoryKeys.PULLS
        start = RepositoryKeys.pull(before) + b"\0" if before else prefix
        partition = self._repositories.keys_of(repository).pulls
        async for _, value in rows_of(self._kv, partition, start, after_prefix(prefix), _SCAN):
            if (pull := _readable(value)) is not None:
                yield pull

    async def _open(self, repository: Repository, before: int) -> AsyncIterator[PullRequest]:
        index = await self._index(repository).read()
        numbers = sorted({each.number for each in index.open}, reverse=True)
        numbers = [each for each in numbers if not before or each < before]
        partition = self._repositories.keys_of(repository).pulls
        for at in range(0, len(numbers), _SCAN):
            keys = [RepositoryKeys.pull(each) for each in numbers[at : at + _SCAN]]
            rows: Sequence[Versioned | None] = await self._kv.get_many(partition, keys)
            for row in rows:
                if row is not None and (pull := _readable(row.value)) is not None:
                    yield pull

    async def events(
        self, repository: Repository, number: int, after: int, limit: int
    ) -> tuple[list[tuple[int, PullEvent]], bool]:
        """Returns up to `limit` events with greater sequences, oldest first, and whether more may follow."""
        partition = self._repositories.keys_of(repository).pulls
        start = RepositoryKeys.pull_event(number, after + 1)
        end = RepositoryKeys.pull_event(number + 1, 0)
        rows = await self._kv.scan(partition, start, end, limit)
        found = [
            (RepositoryKeys.pull_event_sequence(key), decode_pull_event(value))
            for key, value in rows
        ]
        return found, len(rows) == limit


def _readable(value: bytes) -> PullRequest | None:
    """Returns the record of a list; None for a damaged one, which must not stop all lists."""
    try:
        return decode_pull(value)
    except TarnError as error:
        _log.error("cannot read a pull request", error=error.message)
        return None


def _with_event(pull: PullRequest, event: PullEvent, *, always: bool) -> PullRequest:
    text_bytes = pull.text_bytes + len(event.body.encode())
    if not always and (pull.event_count >= EVENTS_MAX or text_bytes > TEXT_BYTES_MAX):
        text = (
            f"pull request {pull.pull_id} has {pull.event_count} events with {pull.text_bytes} bytes of text; at most "
            f"{EVENTS_MAX} and {TEXT_BYTES_MAX} are possible. Merge it, or close it and open another one"
        )
        raise TarnError(Kind.EXHAUSTED, Reason.QUOTA_EXCEEDED, text)
    return replace(pull, event_count=pull.event_count + 1, text_bytes=text_bytes)


def _too_often(repository: Repository) -> TarnError:
    text = f"the pull requests of repository {repository.repository_id} changed {_TRIES} times meanwhile; try again"
    return TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)
