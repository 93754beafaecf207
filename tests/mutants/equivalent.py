"""Mutations that change no behaviour anybody can see, each with the reason.

They are not played and do not count. An entry whose code has changed has no effect.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["EQUIVALENT"]

EQUIVALENT: Final[Mapping[str, str]] = {
    "tarn.core.listing:merge_page: other call: max((layer.paths[-1] for layer in live))"
    " -> min((layer.paths[-1] for layer in live))": (
        "all layers are exhausted: the rows are merged in several rounds instead of one"
    ),
    "tarn_graveler.branches:Attempts.judge: dropped assignment: self._pending = [] -> nothing": (
        "an attempt was applied, so the record has changed and none before it was found pending"
    ),
    "tarn_graveler.conditional:ConditionalStaging.stage: dropped guard: "
    "if fresh.takes_writes_as(record): return value != packed -> nothing": (
        "the next round finds its own row in the staging token and answers the same"
    ),
    "tarn_graveler.entry_service:EntryHandler._not_writable: dropped guard: "
    "if error.reason is not Reason.BRANCH_NOT_FOUND: return error -> nothing": (
        "a branch that exists has no tag of its name, so looking for one changes no answer"
    ),
    "tarn_graveler.fsck.staged:read_branch: dropped statement: or_corrupt(error) -> nothing": (
        "decoding a record raises nothing but CORRUPT, which is what the call lets pass"
    ),
    "tarn_graveler.fsck.state:State.__init__: constant: 0 -> 1": (
        "the number of changes since the last save: the state is saved one change earlier, once"
    ),
    "tarn_graveler.turn:TurnBatches._run: dropped guard: "
    "if not isinstance(error, Exception): raise -> nothing": (
        "the task ends either way, and whoever waits for its batch has the error already"
    ),
    "tarn_graveler.upload_days:UploadDays.begin: comparison: "
    "len(self._begun) >= _KNOWN_MAX -> len(self._begun) > _KNOWN_MAX": (
        "the bound of a cache: it holds one entry more"
    ),
}
