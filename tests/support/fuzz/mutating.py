"""Makes new inputs from old ones; knows only the tokens of the format, not its structure."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from tests.support.fuzz.target import Mutation

__all__ = ["Mutator"]

_INTERESTING = (0, 1, 2, 7, 8, 9, 10, 13, 16, 31, 32, 63, 64, 100, 127, 128, 254, 255, 256, 511)
_LARGE = (
    *(1 << bits for bits in (10, 15, 16, 20, 24, 30, 31, 32, 40, 53, 63, 64)),
    *((1 << bits) - 1 for bits in (15, 16, 24, 31, 32, 40, 53, 63, 64)),
)
_NUMBER = re.compile(rb"\d+")
_REPEATS = (2, 3, 10, 33, 65, 129, 300, 1100, 5000)
_STACK_MAX = 6


class Mutator:
    """Makes inputs.

    Args:
        rng: source of all choices.
        tokens: keywords of the format.
        mutations: structure-aware mutations, used as often as all others together.
        bytes_max: longer results are cut.
    """

    def __init__(
        self,
        rng: random.Random,
        tokens: Sequence[bytes],
        mutations: Sequence[Mutation],
        bytes_max: int,
    ) -> None:
        self._rng = rng
        self._tokens = tuple(tokens) or (b"\0",)
        self._mutations = tuple(mutations)
        self._bytes_max = bytes_max
        self._other = b""
        # The most successful mutations are listed twice.
        self._general = (
            self._flip,
            self._flip,
            self._set,
            self._set,
            self._insert,
            self._delete,
            self._delete,
            self._move,
            self._repeat,
            self._token,
            self._token,
            self._swap_token,
            self._splice,
            self._cross,
            self._integer,
            self._integer,
            self._decimal,
            self._cut,
        )

    def mutate(self, data: bytes, other: bytes) -> bytes:
        """Returns an input made of `data`, and possibly of a piece of `other`."""
        rng = self._rng
        self._other = other
        for _ in range(min(1 + int(rng.expovariate(0.7)), _STACK_MAX)):
            if self._mutations and rng.random() < 0.4:
                data = rng.choice(self._mutations)(rng, data)
            else:
                data = rng.choice(self._general)(data)
            data = data[: self._bytes_max]
        # A repairing mutation (of a length, of a signature) is most useful after breaking ones.
        if self._mutations and rng.random() < 0.25:
            data = rng.choice(self._mutations)(rng, data)[: self._bytes_max]
        return data

    def _slice(self, data: bytes) -> tuple[int, int]:
        """Returns a random slice, mostly a short one."""
        start = self._rng.randrange(len(data) + 1)
        longest = len(data) - start
        if self._rng.random() < 0.7:
            longest = min(longest, 16)
        return start, start + self._rng.randint(0, longest)

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return b"\0"
        changed = bytearray(data)
        changed[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(changed)

    def _set(self, data: bytes) -> bytes:
        if not data:
            return self._rng.randbytes(1)
        changed = bytearray(data)
        changed[self._rng.randrange(len(data))] = self._rng.randrange(256)
        return bytes(changed)

    def _insert(self, data: bytes) -> bytes:
        at = self._rng.randrange(len(data) + 1)
        return data[:at] + self._rng.randbytes(self._rng.randint(1, 8)) + data[at:]

    def _delete(self, data: bytes) -> bytes:
        start, end = self._slice(data)
        return data[:start] + data[end:]

    def _move(self, data: bytes) -> bytes:
        start, end = self._slice(data)
        piece, rest = data[start:end], data[:start] + data[end:]
        at = self._rng.randrange(len(rest) + 1)
        return rest[:at] + piece + rest[at:]

    def _repeat(self, data: bytes) -> bytes:
        """Repeats a piece many times, so that nested or listed structures become deep or long."""
        start, end = self._slice(data)
        times = min(self._rng.choice(_REPEATS), self._bytes_max // max(1, end - start))
        return data[:end] + data[start:end] * times + data[end:]

    def _token(self, data: bytes) -> bytes:
        at = self._rng.randrange(len(data) + 1)
        token = self._rng.choice(self._tokens)
        over = at + len(token) if self._rng.random() < 0.5 else at
        return data[:at] + token + data[over:]

    def _swap_token(self, data: bytes) -> bytes:
        """Replaces a token by another one."""
        present = [token for token in self._tokens if token in data]
        if not present:
            return self._token(data)
        old = self._rng.choice(present)
        return data.replace(old, self._rng.choice(self._tokens), self._rng.choice((1, 1, -1)))

    def _splice(self, data: bytes) -> bytes:
        start, end = self._slice(self._other)
        at, over = self._slice(data)
        return data[:at] + self._other[start:end] + data[over:]

    def _cross(self, data: bytes) -> bytes:
        at = self._rng.randrange(len(data) + 1)
        return data[:at] + self._other[self._rng.randrange(len(self._other) + 1) :]

    def _integer(self, data: bytes) -> bytes:
        """Writes a binary number; the smallest and largest values are the most likely to fail."""
        size = self._rng.choice((1, 2, 4, 8))
        order = self._rng.choice(("little", "big"))
        number = self._rng.choice(_INTERESTING + _LARGE) & ((1 << 8 * size) - 1)
        if self._rng.random() < 0.3:
            number = len(data)
        at = self._rng.randrange(max(1, len(data) - size + 1))
        packed = (number & ((1 << 8 * size) - 1)).to_bytes(size, order)  # type: ignore[arg-type]  # Literal
        return data[:at] + packed + data[at + size :]

    def _decimal(self, data: bytes) -> bytes:
        """Writes a decimal number."""
        found = list(_NUMBER.finditer(data))
        number = self._rng.choice((*_INTERESTING, *_LARGE, -1, 10**30))
        if not found:
            return data + str(number).encode()
        match = self._rng.choice(found)
        if self._rng.random() < 0.4:
            number = int(match[0][:18]) + self._rng.choice((-1, 1))
        return data[: match.start()] + str(number).encode() + data[match.end() :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._rng.randrange(len(data) + 1)]
