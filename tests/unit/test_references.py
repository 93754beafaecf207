"""Every reference leads to a file or heading of this repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THIS = Path(__file__).resolve()
SUFFIXES = {".md", ".py", ".proto", ".toml", ".yaml", ".yml", ".sh"}
GENERATED = "gen/"
PACKAGES = {
    path.name: path
    for folder in (
        "libs",
        "services/auth",
        "services/gateway",
        "services/graveler",
        "services/compactor",
        "cli",
        "jobs",
    )
    for path in (ROOT / folder).glob("tarn*")
    if path.is_dir()
} | {"tests": ROOT / "tests"}

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NAMED = re.compile(
    r"(?<![\w/.{-])((?:docs|libs|services|cli|jobs|bench|tests)/[\w./-]+\.(?:md|py))\b"
)
_MODULE = re.compile(
    r"`((?:tarn|tarn_auth|tarn_cli|tarn_compactor|tarn_gateway|tarn_graveler|tarn_spark|tests)(?:\.\w+)+)`"
)
_NO_MODULE = re.compile(
    r"tarn\.\w+\.v1\b|tarn\.(?:db|json|yaml|log)$|tarn\.(?:kv|rpc|compaction|listing)\.(?:duration|failed|count|rows_\w+|sealed_tokens|tombstones)\b"
    r"|tarn\.(?:revert_of|cherry_picked_from|pull_request|task|author_time)$"
)
"""Packages of protos, files of an installation, metrics, names in the metadata of commits."""
_HEADING_OF_PATH = re.compile(r"(?<![\w/.])((?:docs|services|bench)/[\w./-]+\.md), \"([^\"]+)\"")
_HEADING_OF_LINK = re.compile(r"\]\(([\w./-]+\.md)\), \"([^\"]+)\"")
_ELSEWHERE = re.compile(r"(design §|\bfacts/|\bfacts A\d|\bseed 00\d|/work/|starting design)")
"""Marks of documents that are not in this repository."""


def files() -> list[Path]:
    """Returns the text files of the repository, committed or not ignored."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / line for line in done.stdout.splitlines() if not line.startswith(GENERATED)]
    wanted = [
        path
        for path in paths
        if path.suffix in SUFFIXES or path.name == "Makefile" or path.parent.name == "tools"
    ]
    return [path for path in wanted if path.is_file() and path != THIS]


def without_code(text: str) -> str:
    """Returns Markdown without its code blocks, which contain no references and no headings."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(text: str) -> set[str]:
    lines = without_code(text).splitlines()
    return {line.lstrip("#").strip() for line in lines if line.startswith("#")}


def anchor(heading: str) -> str:
    """Returns GitHub's anchor of a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.replace(" ", "-")


def broken_links(text: str, folder: Path) -> Iterator[str]:
    """Returns the broken relative links of a Markdown text."""
    for target in _LINK.findall(without_code(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        path = folder / name
        if not path.exists():
            yield target
        elif fragment:
            page = path.read_text() if name else text
            if fragment not in {anchor(heading) for heading in headings(page)}:
                yield target


def missing_paths(text: str) -> Iterator[str]:
    """Returns the documents, models and tests that a text names by path and that do not exist."""
    for name in _NAMED.findall(text):
        if not (ROOT / name).exists():
            yield name


def missing_modules(text: str) -> Iterator[str]:
    """Modules, and names in them, that a text names in backticks and that do not exist."""
    for name in _MODULE.findall(text):
        if _NO_MODULE.match(name):
            continue
        place, rest = PACKAGES[name.partition(".")[0]], name.split(".")[1:]
        while rest and (place / rest[0]).is_dir():
            place, rest = place / rest[0], rest[1:]
        if not rest:
            continue
        module = place / f"{rest[0]}.py"
        source, names = (module, rest[1:]) if module.is_file() else (place / "__init__.py", rest)
        known = source.read_text() if source.is_file() else ""
        defined = r'(?m)(?:class |def |self\.){0}\b|^\s*{0}\s*[:=]|"{0}"'
        if not all(re.search(defined.format(each), known) for each in names):
            yield name


def missing_headings(text: str, folder: Path) -> Iterator[str]:
    """Returns the headings that a text names for a document that does not have them."""
    joined = re.sub(r"\s*\n\s*(?:#\s|//\s)?\s*", " ", text)
    found = [(ROOT / name, heading) for name, heading in _HEADING_OF_PATH.findall(joined)]
    found += [(folder / name, heading) for name, heading in _HEADING_OF_LINK.findall(joined)]
    for path, heading in found:
        if path.exists() and heading not in headings(path.read_text()):
            yield f"{path.name}: {heading}"


def test_links_in_markdown_lead_somewhere() -> None:
    pages = [path for path in files() if path.suffix == ".md"]
    broken = {
        path.relative_to(ROOT).as_posix(): found
        for path in pages
        if (found := list(broken_links(path.read_text(), path.parent)))
    }
    assert len(pages) > 20
    assert broken == {}


def test_documents_headings_and_modules_that_are_named_exist() -> None:
    broken, named = {}, 0
    for path in files():
        text = path.read_text()
        named += len(_NAMED.findall(text))
        found = [*missing_paths(text), *missing_headings(text, path.parent), *missing_modules(text)]
        if found:
            broken[path.relative_to(ROOT).as_posix()] = found
    assert named > 100
    assert broken == {}


def test_nothing_refers_to_documents_elsewhere() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): marks
        for path in files()
        if (marks := _ELSEWHERE.findall(path.read_text()))
    }
    assert found == {}


def test_every_page_of_the_design_is_in_its_index() -> None:
    folder = ROOT / "docs" / "design"
    listed = set(_LINK.findall((folder / "README.md").read_text()))
    assert {path.name for path in folder.glob("*.md")} - listed == {"README.md"}


DESIGN = ROOT / "docs" / "design"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[kv](kv.md) and [words](../glossary.md)", []),
        ("[kv](kv.md#two-tables)", []),
        ("# Kv\n[kv](#kv) and [more](#more)", ["#more"]),
        ("[kv](kvs.md)", ["kvs.md"]),
        ("[kv](kv.md#three-tables)", ["kv.md#three-tables"]),
        ("```\n[kv](kvs.md)\n```", []),
        ("[S3](https://example.com/kvs.md)", []),
    ],
)
def test_a_broken_link_is_found(text: str, expected: list[str]) -> None:
    assert list(broken_links(text, DESIGN)) == expected


def test_a_missing_document_is_found() -> None:
    text = "see docs/design/kv.md and (docs/design/kvs.md; tests/models/branch_models.py)"
    assert list(missing_paths(text)) == ["docs/design/kvs.md", "tests/models/branch_models.py"]


def test_a_missing_heading_is_found_across_lines() -> None:
    text = '# see docs/design/kv.md,\n# "Two tables" and docs/design/kv.md, "Three\n# tables"'
    assert list(missing_headings(text, ROOT)) == ["kv.md: Three tables"]
    assert list(missing_headings('[kv.md](kv.md), "Three"', DESIGN)) == ["kv.md: Three"]


def test_a_missing_module_is_found() -> None:
    text = "`tarn.kv.port.Kv.scan`, `tarn.kv.metadata`, `tarn.kv.port.Kw`, `tarn.kv.duration.count`"
    assert list(missing_modules(text)) == ["tarn.kv.metadata", "tarn.kv.port.Kw"]
