"""The pictures of the documentation are drawn from their sources, and each is shown."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


def test_each_picture_was_drawn_from_its_source() -> None:
    style = (PICTURES / "style.iuml").read_bytes()
    sources = sorted(PICTURES.glob("*.puml"))
    stale = []
    for source in sources:
        digest = hashlib.sha256(style + source.read_bytes()).hexdigest()
        drawn = source.with_suffix(".svg")
        if not drawn.exists() or f"<!-- source: {digest} -->" not in drawn.read_text():
            stale.append(source.name)
    assert sources
    assert not stale, f"run `make pictures` and commit what it draws: {stale}"


def test_each_picture_is_shown_on_the_page() -> None:
    page = (ROOT / "docs" / "ten-pictures.md").read_text()
    assert [
        each.name for each in PICTURES.glob("*.svg") if f"(pictures/{each.name})" not in page
    ] == []
