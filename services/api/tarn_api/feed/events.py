"""Events of a branch: what they say, their ids, and how they are sent. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import msgspec

from tarn.core.printable import printable
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import diff_service_pb2 as diff_pb
from tarn_proto.graveler.v1 import reflog_service_pb2 as pb
from tarn_rest.schemas import BranchEvent, FolderChanges

__all__ = [
    "HEAD_KINDS",
    "Position",
    "change_event",
    "frame",
    "head_event",
    "missed_event",
    "time_us_of",
]

HEAD_KINDS: Final = MappingProxyType(
    {
        pb.HEAD_OPERATION_CREATE: "created",
        pb.HEAD_OPERATION_COMMIT: "commit",
        pb.HEAD_OPERATION_MERGE: "merge",
        pb.HEAD_OPERATION_REVERT: "revert",
        pb.HEAD_OPERATION_CHERRY_PICK: "cherry-pick",
        pb.HEAD_OPERATION_MOVE: "moved",
        pb.HEAD_OPERATION_DELETE: "deleted",
        pb.HEAD_OPERATION_RESTORE: "restored",
    }
)
"""Words for what changed a head; others are `other`."""
_SENTENCES: Final = MappingProxyType(
    {
        "created": "{user} created the branch at {new}",
        "commit": "{user} committed {new}",
        "merge": "{user} merged {new}",
        "revert": "{user} reverted by {new}",
        "cherry-pick": "{user} picked {new}",
        "moved": "{user} moved the branch from {old} to {new}",
        "deleted": "{user} deleted the branch, which was at {old}",
        "restored": "{user} restored the branch at {new}",
        "other": "{user} changed the head from {old} to {new}",
    }
)
_ID_CHARS: Final = 12
_SUBJECT_CHARS: Final = 200
_MESSAGE_CHARS: Final = 1000
_FOLDERS_MAX: Final = 20
_FOLDERS_IN_TEXT: Final = 5
_POSITION: Final = re.compile(r"(\d{1,19})(?:-([0-9a-f]{8})-(\d{1,12}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position:
    """The id of an event: which events come after it.

    Attributes:
        head_us: the time of the newest change of the head that is before, in microseconds; it identifies the change.
        run: the channel that sent the event; empty: none did, so only changes of the head are known to come after it.
        number: of the event in that channel.
    """

    head_us: int
    run: str = ""
    number: int = 0

    def __str__(self) -> str:
        return f"{self.head_us}-{self.run}-{self.number}" if self.run else str(self.head_us)

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Returns the position of an id; None if it is none."""
        found = _POSITION.fullmatch(text)
        return None if found is None else cls(int(found[1]), found[2] or "", int(found[3] or 0))


def time_us_of(change: pb.HeadChange) -> int:
    """Returns the time of a change of the head, in microseconds: no two changes of one branch have the same."""
    return change.time.ToMicroseconds()


def frame(position: Position, event: BranchEvent) -> bytes:
    """Returns an event as it is sent. JSON has no line breaks."""
    return b"id: %b\ndata: %b\n\n" % (str(position).encode(), msgspec.json.encode(event))


def head_event(
    change: pb.HeadChange, commit: commit_pb.Commit | None, counts: diff_pb.SummarizeDiffResponse
) -> BranchEvent:
    """Returns the event of a change of the head.

    Args:
        change: the entry of the reflog.
        commit: the new head; None if it is not known.
        counts: what it changed, by folder; empty if nobody counted.
    """
    kind = HEAD_KINDS.get(change.operation, "other")
    message = "" if commit is None else commit.message
    user = change.user_id
    text = _SENTENCES[kind].format(
        user=printable(user) or "Tarn",
        old=change.old_commit_id[:_ID_CHARS] or "nothing",
        new=change.new_commit_id[:_ID_CHARS],
    )
    if message:
        text += f": {printable((message.splitlines() or [''])[0][:_SUBJECT_CHARS])}"
    folders = [
        FolderChanges(
            path=each.path,
            writes=each.counts.added_count + each.counts.changed_count,
            deletes=each.counts.removed_count,
            undone=0,
        )
        for each in counts.folders
    ]
    has_more = bool(counts.next_page_token) or len(folders) > _FOLDERS_MAX
    if folders:
        text += f" ({_counted(folders, has_more=has_more)})"
    return BranchEvent(
        kind=kind,
        time_us=time_us_of(change),
        text=text,
        user=user,
        commit_id=change.new_commit_id,
        previous_commit_id=change.old_commit_id,
        message=message[:_MESSAGE_CHARS],
        folders=folders[:_FOLDERS_MAX],
        has_more=has_more,
    )


def change_event(time_us: int, folders: Sequence[FolderChanges]) -> BranchEvent:
    """Returns the event of uncommitted changes since the last look.

    Args:
        time_us: of the look, in microseconds.
        folders: with at least one change each.
    """
    has_more = len(folders) > _FOLDERS_MAX
    return BranchEvent(
        kind="changes",
        time_us=time_us,
        text=f"At least {_counted(folders, has_more=False)}, not committed",
        folders=list(folders[:_FOLDERS_MAX]),
        has_more=has_more,
    )


def missed_event(time_us: int) -> BranchEvent:
    """Returns what tells a reader that there is a gap."""
    return BranchEvent(
        kind="missed", time_us=time_us, text="Some events before this are not shown", folders=[]
    )


def _counted(folders: Sequence[FolderChanges], *, has_more: bool) -> str:
    """Returns the counts of some folders in words."""
    shown = [f"{_words(each)} in {printable(each.path)}" for each in folders[:_FOLDERS_IN_TEXT]]
    if len(folders) > _FOLDERS_IN_TEXT or has_more:
        shown.append("more elsewhere")
    return "; ".join(shown)


def _words(each: FolderChanges) -> str:
    counts = ((each.writes, "write"), (each.deletes, "delete"), (each.undone, "undone"))
    return ", ".join(
        f"{count} {word}{'s' if count > 1 and word != 'undone' else ''}"
        for count, word in counts
        if count
    )
