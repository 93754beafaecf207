"""The age of an address, which decides whether a writer may still stage it (rule 11, docs/design/protocol.md)."""

from __future__ import annotations

from typing import Final

from tarn.core.collection import CollectionLimits
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import address_time_us

__all__ = ["check_address_age", "is_ahead", "is_young"]

_HOUR_US: Final = 3_600_000_000


def is_ahead(age_us: int, limits: CollectionLimits) -> bool:
    """Whether the age of an address puts it so far in the future that a clock must be wrong (rule 11)."""
    return -age_us > limits.ahead_us


def is_young(address: bytes, now_us: int, limits: CollectionLimits) -> bool:
    """Whether an address may be staged (rule 11): it is below the staging limit, and not from the future."""
    age_us = now_us - address_time_us(address)
    return age_us < limits.staging_us and not is_ahead(age_us, limits)


def check_address_age(address: bytes, now_us: int, limits: CollectionLimits) -> None:
    """Refuses an address that is too old to be staged, or from the future (rule 11).

    Raises:
        TarnError: FAILED_PRECONDITION, ADDRESS_TOO_OLD; FAILED_PRECONDITION, ADDRESS_IN_FUTURE.
    """
    if is_young(address, now_us, limits):
        return
    age_us = now_us - address_time_us(address)
    if is_ahead(age_us, limits):
        minutes = -age_us // 60_000_000
        text = (
            f"the address {address.hex()} is from {minutes} minutes in the future, so a collection could not tell the "
            f"age of its block; at most {limits.ahead_us // 60_000_000} are allowed. Set the clocks of the gateways "
            "and of graveler, and write the object again"
        )
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.ADDRESS_IN_FUTURE, text)
    hours = limits.staging_us / _HOUR_US
    text = (
        f"the block {address.hex()} was begun more than {hours:g} hours ago, so a garbage collection "
        "may delete it; write the object again"
    )
    raise TarnError(Kind.FAILED_PRECONDITION, Reason.ADDRESS_TOO_OLD, text)
