"""Channels: one for each branch that somebody watches. It looks at the branch for all of its viewers, and keeps the
newest events for those who connect again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call
from tarn_api.feed.counting import StagedCounts
from tarn_api.feed.events import (
    Position,
    change_event,
    frame,
    missed_event,
    time_us_of,
)
from tarn_api.feed.looking import HEADS_MAX, BranchView
from tarn_api.feed.viewers import Viewer
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb
from tarn_rest.schemas import BranchEvent

__all__ = ["BranchChannel"]

_LOOK_S: Final = 1.0
_COUNT_S: Final = 2.0
_SHARE: Final = 40
"""A look is followed by a pause of so many times its duration: a branch takes at most a fortieth of the time."""
_PAUSE_S_MAX: Final = 30.0
_LINGER_S: Final = 30.0
"""So long a channel stays without viewers, for those who connect again."""
_FRAMES_MAX: Final = 200
_FRAMES_BYTES_MAX: Final = 256 * 1024
_CALL_S: Final = 10.0
_LOST: Final = (Kind.DENIED, Kind.UNAUTHENTICATED)

_log = structlog.get_logger()


class BranchChannel:
    """The events of a branch.

    Args:
        view: looks at the branch.
        repository: the repository.
        branch: the branch.
        clock: time.
        run: names this channel in ids of events; eight hexadecimal digits.

    Attributes:
        viewers: in the order in which they came. The first one's token is the one that looks.
        joining: how many are about to be viewers.
        looking: the task that looks.
    """

    looking: asyncio.Task[None]

    def __init__(
        self, view: BranchView, repository: str, branch: str, clock: Clock, run: str
    ) -> None:
        self.repository, self.branch = repository, branch
        self.viewers: dict[Viewer, None] = {}
        self.joining = 0
        self._view, self._clock, self._run_id = view, clock, run
        self._starting = asyncio.Lock()
        self._is_started = False
        self._idle_since = clock.monotonic()
        # Of the head: the newest changes, and the time of the last one.
        self._heads: deque[pb.HeadChange] = deque(maxlen=5 * HEADS_MAX)
        self._is_whole = False
        self._head_us = 0
        self._counts = StagedCounts()
        self._count_at = 0.0
        # Events, and the number of the last one.
        self._frames: deque[bytes] = deque()
        self._bytes = 0
        self._number = 0
        self._failures = 0

    @property
    def is_unused(self) -> bool:
        """Whether nobody watches."""
        return not (self.viewers or self.joining)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has watched for a while."""
        return self.is_unused and self._clock.monotonic() >= self._idle_since + _LINGER_S

    async def start(self, call: Call) -> None:
        """Looks at the branch for the first time, once.

        Raises:
            TarnError: of graveler.
        """
        async with self._starting:
            if self._is_started:
                return
            found = await self._view.heads(call, None)
            self._note_heads(found.changes)
            self._is_whole = found.is_whole
            await self._count(call)
            self._is_started = True

    # ---- viewers

    def join(self, viewer_of: Callable[[int], Viewer]) -> tuple[Viewer, int, list[pb.HeadChange]]:
        """Adds a viewer behind the newest event. Returns it, the number of that event, and the changes of the head
        up to there."""
        viewer = viewer_of(self._number)
        self.viewers[viewer] = None
        return viewer, self._number, list(self._heads)

    def leave(self, viewer: Viewer) -> None:
        """Takes a viewer out."""
        if viewer in self.viewers:
            del self.viewers[viewer]
            self._idle_since = self._clock.monotonic()

    async def missed(
        self, call: Call, position: Position, number: int, heads: list[pb.HeadChange]
    ) -> list[bytes]:
        """Returns the events after a position up to the moment at which a viewer joined.

        Args:
            call: of the viewer.
            position: the last event that its client has.
            number: as `join` returned it.
            heads: likewise.
        """
        if position.run == self._run_id and position.number <= number:
            kept = self.after(position.number)
            if kept is not None:
                return kept[: number - position.number]
        newest = time_us_of(heads[-1]) if heads else 0
        changes = [each for each in heads if time_us_of(each) > position.head_us]
        is_whole = (
            # What was written meanwhile is not known, unless the client only has what a page showed.
            not position.run
            and position.head_us <= newest
            and len(changes) <= HEADS_MAX
            and (self._is_whole or len(changes) < len(heads) or not heads)
        )
        found: list[bytes] = []
        if not is_whole:
            gap = missed_event(self._clock.now_us())
            found.append(frame(Position(min(position.head_us, newest)), gap))
        events = await self._view.events(call, changes[-HEADS_MAX:])
        found += [frame(Position(each.time_us), each) for each in events]
        return found

    def after(self, number: int) -> list[bytes] | None:
        """Returns the events after one; None: some of them are gone."""
        count = self._number - number
        if count > len(self._frames):
            return None
        return [self._frames[at] for at in range(-count, 0)] if count else []

    def end(self, reason: str) -> None:
        """Ends all streams."""
        for viewer in tuple(self.viewers):
            viewer.end(reason)

    # ---- looking

    async def run(self) -> None:
        """Looks at the branch until nobody watches it."""
        pause = _LOOK_S
        while True:
            await self._clock.sleep(pause)
            if self.is_idle:
                return
            if not self.viewers:
                continue
            spent = await self._look(next(iter(self.viewers)))
            pause = min(max(_LOOK_S * 2**self._failures, spent * _SHARE), _PAUSE_S_MAX)

    async def _look(self, speaker: Viewer) -> float:
        """Looks once, with the token of a viewer; returns the seconds that the look at the head took. That at what is
        uncommitted, which may take much longer, has its own rest."""
        grant = speaker.caller.grant
        if grant is None or not speaker.may_read:
            speaker.end("DENIED")
            self.leave(speaker)
            return 0.0
        began = self._clock.monotonic()
        call = Call(f"feed-{self._run_id}", grant.caller_token, began + _CALL_S)
        spent = 0.0
        try:
            await self._find_heads(call)
            now = self._clock.monotonic()
            spent = now - began
            if now >= self._count_at:
                await self._count(call)
        except TarnError as error:
            self._failed(speaker, error)
        else:
            self._failures = 0
        return spent

    def _failed(self, speaker: Viewer, error: TarnError) -> None:
        if error.kind in _LOST:
            speaker.end(error.reason.value)
            self.leave(speaker)
        elif error.reason in (Reason.REPOSITORY_NOT_FOUND, Reason.REPOSITORY_DELETED):
            self.end(error.reason.value)
        elif error.kind is not Kind.NOT_FOUND:  # a deleted branch may come back
            self._failures = min(self._failures + 1, 5)
            _log.warning("look at a branch failed", repo=self.repository, reason=error.reason.value)

    async def _find_heads(self, call: Call) -> None:
        found = await self._view.heads(call, self._head_us)
        if not found.changes:
            return
        events = await self._view.events(call, found.changes)
        if not found.is_whole and self._head_us:
            self._publish(missed_event(self._clock.now_us()))
        for change, event in zip(found.changes, events, strict=True):
            self._note_heads([change])
            self._publish(event)
            is_empty = change.operation == pb.HEAD_OPERATION_COMMIT
            self._counts.begin(is_empty=is_empty)
        self._count_at = 0.0

    def _note_heads(self, changes: Iterable[pb.HeadChange]) -> None:
        for each in changes:
            if len(self._heads) == self._heads.maxlen:
                self._is_whole = False
            self._heads.append(each)
            self._head_us = time_us_of(each)

    async def _count(self, call: Call) -> None:
        """Reads one page of the counts of what is uncommitted."""
        began = self._clock.monotonic()
        page = await self._view.uncommitted(call, self._counts.token)
        now = self._clock.monotonic()
        self._count_at = now + min(max(_COUNT_S, (now - began) * _SHARE), _PAUSE_S_MAX)
        if page is None:
            self._counts.restart()
            return
        head = self._heads[-1].new_commit_id if self._heads else page.commit_id
        if page.commit_id != head:
            self._counts.restart()  # the next look has that change of the head
        elif changed := self._counts.add(page):
            self._publish(change_event(self._clock.now_us(), changed))

    def _publish(self, event: BranchEvent) -> None:
        self._number += 1
        made = frame(Position(self._head_us, self._run_id, self._number), event)
        self._frames.append(made)
        self._bytes += len(made)
        while len(self._frames) > _FRAMES_MAX or self._bytes > _FRAMES_BYTES_MAX:
            self._bytes -= len(self._frames.popleft())
        for viewer in self.viewers:
            viewer.wake()
