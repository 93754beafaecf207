"""Limits: a sweep that would delete an unusual share of a repository waits for a person.

A defect in the roots shows first as too many candidates. So a run has limits: a share of the listed blocks or bytes, a
number of bytes, and a multiple of the candidates of the last complete sweep. A run beyond them is not swept until a
person has looked at its quarantine and confirms it by its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tarn.collection.block_names import BlockKind
from tarn.collection.quarantine import Manifest, Tally, run_folder
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["DEFAULT_LIMITS", "Limits", "check_limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a run may delete without a confirmation.

    Attributes:
        share_max: of the blocks of each kind, and of their bytes, 0 to 1.
        bytes_max: of the bytes of all kinds; 0: no limit.
        growth_max: times the candidates of the last complete sweep, and times their bytes; 0: no limit. Below
            `GROWTH_BLOCKS` and `GROWTH_BYTES` it does not apply: small repositories vary.
    """

    share_max: float = 0.5
    bytes_max: int = 0
    growth_max: float = 5.0


DEFAULT_LIMITS: Final = Limits()
GROWTH_BLOCKS: Final = 10_000
GROWTH_BYTES: Final = 10 << 30


def check_limits(manifest: Manifest, limits: Limits, last: Tally | None = None) -> None:
    """Refuses a run that exceeds the limits.

    Args:
        manifest: of the mark.
        limits: the most that may be deleted without a confirmation.
        last: the candidates of the last complete sweep; None: there was none.

    Raises:
        TarnError: FAILED_PRECONDITION; its text says how to look and how to confirm.
    """
    total = Tally()
    for kind in BlockKind:
        doomed, listed = manifest.candidates(kind), manifest.listed[kind.value]
        total.add(doomed.count, doomed.size_bytes)
        for found, most, unit in (
            (doomed.count, listed.count, f"{kind.value} blocks"),
            (doomed.size_bytes, listed.size_bytes, f"bytes of {kind.value} blocks"),
        ):
            if found > most * limits.share_max:
                told = f"{found} of {most} {unit}, more than {limits.share_max:.0%}"
                raise _exceeded(manifest, told)
    if limits.bytes_max and total.size_bytes > limits.bytes_max:
        raise _exceeded(manifest, f"{total.size_bytes} bytes, more than {limits.bytes_max}")
    if last is None or not limits.growth_max:
        return
    for found, before, floor, unit in (
        (total.count, last.count, GROWTH_BLOCKS, "blocks"),
        (total.size_bytes, last.size_bytes, GROWTH_BYTES, "bytes"),
    ):
        if found > max(floor, before * limits.growth_max):
            told = f"{found} {unit}, more than {limits.growth_max:g} times the {before} of the last sweep,"
            raise _exceeded(manifest, told)


def _exceeded(manifest: Manifest, told: str) -> TarnError:
    text = (
        f"run {manifest.run_id} would delete {told} from {manifest.repository}; look at "
        f"{run_folder(manifest.run_id)}quarantine/, and if it is right, run "
        f"`tarn gc run {manifest.repository} --confirm {manifest.run_id}`; nothing is deleted before. A week after its "
        "grace time it is replaced by a new mark"
    )
    return TarnError(
        Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text, run_id=manifest.run_id
    )
