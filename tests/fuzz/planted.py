"""Bugs put there on purpose: a fuzzer that finds none of these finds nothing."""

# ruff: noqa: SIM102 - the fuzzer sees lines, so each condition stands on one of its own

from __future__ import annotations

import ctypes

from tarn.testing.fuzz.target import Check, Target

NAMED_TWICE = b"\xa7\x3c"


class RefusedError(Exception):
    """What the parsers here document."""


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
    """Goes on for ever in Python."""
    if data.startswith(b"<"):
        if data.endswith(b">"):
            while True:
                pass


def hang_in_c(data: bytes) -> None:
    """Goes on for ever where no signal is looked at."""
    if data.startswith(b"<"):
        if data.endswith(b">"):
            sum(iter(int, 1))


def bomb(data: bytes) -> None:
    """Believes a length and touches all of it."""
    if data.startswith(b"size="):
        size = int.from_bytes(data[5:8], "big") * 16
        bytearray(b"\x01") * size


def reservation(data: bytes) -> None:
    """Believes a length and touches nothing of it, so that only the address space grows."""
    if data.startswith(b"size="):
        bytearray(int.from_bytes(data[5:11], "big"))


def death(data: bytes) -> None:
    """Takes the process with it."""
    if data.startswith(b"null"):
        ctypes.string_at(0)


def untold(data: bytes) -> None:
    """Raises an error that is not in the contract."""
    data.decode()


def sound(data: bytes) -> str:
    """No bug here."""
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
