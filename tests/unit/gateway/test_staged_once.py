"""A request stages its entry once: what another client writes right after is not undone by it."""

from __future__ import annotations

from typing import Any

import pytest

from tarn.core.entry import Entry, pack

SMALL = b"one small body"
NEWER = pack(Entry(7, 1, bytes(16), bytes(16)))


class Contended(dict[str, bytes]):
    """A branch on which another client overwrites a path as soon as anything was staged there."""

    def __init__(self, entries: dict[str, bytes], path: str) -> None:
        super().__init__(entries)
        self._path = path

    def __setitem__(self, path: str, entry: bytes) -> None:
        super().__setitem__(path, entry)
        if path == self._path:
            self._path = ""
            super().__setitem__(path, NEWER)


@pytest.mark.parametrize(
    ("method", "source", "headers", "body"),
    [
        ("PUT", "", {}, SMALL),
        ("PUT", "", {"if-none-match": "*"}, SMALL),
        ("PUT", "lake/main/source", {}, b""),
        ("PUT", "lake/main/source", {"x-amz-metadata-directive": "REPLACE"}, b""),
        ("PUT", "pond/main/source", {}, b""),
    ],
)
async def test_a_newer_write_survives_the_request_that_it_follows(
    lake: Any, method: str, source: str, headers: dict[str, str], body: bytes
) -> None:
    lake.create("pond")
    for repository in ("lake", "pond"):
        await lake.ask("PUT", f"/{repository}/main/source", body=SMALL)
    branches = lake.graveler.repos["lake"].branches
    branches["main"] = Contended(branches["main"], "a")
    copied = {"x-amz-copy-source": source} if source else {}
    reply = await lake.ask(method, "/lake/main/a", headers=headers | copied, body=body)
    assert reply.status == 200
    assert pack(lake.entry("lake", "main", "a")) == NEWER
