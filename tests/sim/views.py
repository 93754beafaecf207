"""The history of a bucket view, and the judge of its uses (I12)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.check.history import NEVER, Op

from tarn.core.errors import Reason
from tarn_proto.graveler.v1.bucket_service_pb2 import BucketView

__all__ = ["MOVED", "Change", "Views", "version_of"]

MOVED = frozenset({Reason.BUCKET_MOVED, Reason.BUCKET_NOT_FOUND})
"""Reasons of refusals of a call whose view shows something else."""


def version_of(view: BucketView) -> str:
    """Names a version of a view, whatever the ETags of production say."""
    return f"{view.etag} of {view.create_time.ToMicroseconds()}"


@dataclass
class Change:
    """A change of the view, or its deletion; times of the history."""

    begin: float
    end: float = NEVER
    version: str = ""


@dataclass
class Views:
    """What happened to the view: every change, in the order in which the administrator made them, and every use.

    Attributes:
        changes: those that are done, or may be.
        uses: operations with the version that each of them named.
    """

    changes: list[Change] = field(default_factory=list)
    uses: list[tuple[Op, str]] = field(default_factory=list)

    def _made(self, version: str) -> int | None:
        found = (at for at, change in enumerate(self.changes) if change.version == version)
        return next(found, None)

    def judge(self) -> list[str]:
        """Returns what is wrong (I12), and notes which refusals are right."""
        problems: list[str] = []
        for op, version in self.uses:
            made = self._made(version)
            later = self.changes[0 if made is None else made + 1 :]
            if op.reason in MOVED:
                if any(change.begin < op.end for change in later):
                    op.grounds |= {op.reason}
            elif op.is_ok and any(change.end < op.inv for change in later if made is not None):
                problems.append(
                    f"{op.line()}: through version {version} of the view, which was replaced"
                )
        return problems
