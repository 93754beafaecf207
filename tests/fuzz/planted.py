"""Planted bugs, which the fuzzer must find."""

# ruff: noqa: SIM102 - the fuzzer traces lines, so each condition has its own line

from __future__ import annotations

import ctypes

from tests.support.fuzz.target import Check, Target

NAMED_TWICE = b"\xa7\x3c"


class RefusedError(Exception):
    """The refusal that these parsers document."""


def crash(data: bytes) -> None:
    """Fails behind four comparisons, one inside the other, that no random input passes."""
    if len(data) < 6:
        raise RefusedError("short")
    if data[0] == NAMED_TWICE[0]:
        if data[1] == NAMED_TWICE[1]:
            if data[2] == data[5] ^ 0x55:
                if data[3] > 0xC0:
                    raise KeyError("planted")


def hang(data: bytes) -> None:
    """Loops for ever in Python."""
    if data.startswith(b"<"):
        if data.endswith(b">"):
            while True:
                pass


def hang_in_c(data: bytes) -> None:
    """Loops for ever in C, where signals are not handled."""
    if data.startswith(b"<"):
        if data.endswith(b">"):
            sum(iter(int, 1))


def bomb(data: bytes) -> None:
    """Trusts a length, and allocates and fills that much memory."""
    if data.startswith(b"size="):
        size = int.from_bytes(data[5:8], "big") * 16
        bytearray(b"\x01") * size


def reservation(data: bytes) -> None:
    """Trusts a length and allocates that much without touching it, so that only the address space grows."""
    if data.startswith(b"size="):
        bytearray(int.from_bytes(data[5:11], "big"))


def death(data: bytes) -> None:
    """Kills the process."""
    if data.startswith(b"null"):
        ctypes.string_at(0)


def untold(data: bytes) -> None:
    """Raises an error that is not documented."""
    data.decode()


def sound(data: bytes) -> str:
    """Has no bug."""
    if len(data) % 3 == 0:
        raise RefusedError("three")
    return "long" if len(data) > 100 else "short"


def _target(name: str, check: Check) -> Target:
    return Target(
        name,
        check,
        refusals=(RefusedError,),
        traced=("tests.fuzz.planted",),
        input_bytes_max=256,
        cpu_s=0.3,
        memory_bytes=32 << 20,
    )


CRASH = _target("crash", crash)
HANG = _target("hang", hang)
HANG_IN_C = _target("hang_in_c", hang_in_c)
BOMB = _target("bomb", bomb)
RESERVATION = _target("reservation", reservation)
DEATH = _target("death", death)
UNTOLD = _target("untold", untold)
SOUND = _target("sound", sound)
