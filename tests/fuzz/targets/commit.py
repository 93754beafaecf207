"""Commit objects: any bytes are either refused as damaged or are the commit that their id names."""

from __future__ import annotations

import json
import random
import re

from tests.fuzz.targets.refusals import corrupt_only
from tests.support.fuzz.target import PropertyError, Target

from tarn.core.commit import commit_id_of, from_json, to_json
from tarn.core.errors import TarnError

__all__ = ["TARGET"]

_HASHES = re.compile(r"hashes to ([0-9a-f]{64})")


def _check(data: bytes) -> str:
    commit = corrupt_only(lambda: from_json(data))
    again = to_json(commit)
    if from_json(again) != commit:
        raise PropertyError(f"another commit comes back than {commit}")
    if commit_id_of(commit).encode() not in data:
        raise PropertyError("a commit of another id")
    return "same" if again == data else "other spelling"


def _rehashed(rng: random.Random, data: bytes) -> bytes:
    """Sets the id that fits the other fields."""
    try:
        fields = json.loads(data)
        fields["commit_id"] = ""
    except (ValueError, TypeError, RecursionError):
        return data
    try:
        from_json(json.dumps(fields).encode())
    except TarnError as error:
        found = _HASHES.search(error.message)
        if found is not None:
            fields["commit_id"] = found[1]
            return json.dumps(fields).encode()
    return data


def _field(rng: random.Random, data: bytes) -> bytes:
    """Changes the value of one field."""
    try:
        fields = json.loads(data)
        fields[rng.choice(sorted(fields))] = rng.choice(_VALUES)
    except (ValueError, TypeError, IndexError, RecursionError):
        return data
    return _rehashed(rng, json.dumps(fields).encode())


def _deep(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice((b"[", b'{"a":')) * rng.choice((50, 900, 3000)) + data[at:]


_VALUES: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 1.0, 1.5, 1e400, 2**63, 2**64, 10**50, "", "a", "\ud800", "é", [],
    ["a"], [1], [[]], {}, {"a": "b"}, {"b": "1", "a": "2"}, {"a": 1}, {"": ""}, "x" * 3000,
)  # fmt: skip

TARGET = Target(
    "commit",
    _check,
    refusals=(TarnError,),
    traced=("tarn.core.commit",),
    mutations=(_rehashed, _field, _deep),
    tokens=(b'"', b"\\ud800", b"NaN", b"Infinity", b"1e999", b"{", b"[", b"\xef\xbb\xbf", b"\0"),
    share=0.25,
)
