"""The declared, pinned, imported and explained packages are the same."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from locks import locked
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "dependencies.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PRODUCT = ("libs", "gen", "services", "cli", "jobs")
OURS = "tarn"
# Only tests import the contract suites of drivers, and they only in development.
TESTING = ROOT / "libs" / "tarn" / "testing"


def direct(*extras: str) -> set[str]:
    """Returns the packages that the project declares; without extras, those that every part needs."""
    lists = [PROJECT["optional-dependencies"][name] for name in extras] or [PROJECT["dependencies"]]
    names = (canonicalize_name(Requirement(text).name) for texts in lists for text in texts)
    return {name for name in names if name != OURS}


RUNTIME = direct() | direct("jobs")
ALL = RUNTIME | direct("dev")


def imported(files: Iterable[Path]) -> set[str]:
    """Returns the top-level modules that files import, without the standard library."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names


def product_files() -> list[Path]:
    paths = (path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py"))
    return [path for path in paths if TESTING not in path.parents]


def test_all_extras_are_known_here() -> None:
    assert set(PROJECT["optional-dependencies"]) == {"jobs", "dev"}


def test_imports_and_declarations_of_the_product_agree() -> None:
    modules = {name for name in imported(product_files()) if not name.startswith(OURS)}
    sources = packages_distributions()
    found = {name: {canonicalize_name(each) for each in sources.get(name, ())} for name in modules}
    undeclared = {name for name, packages in found.items() if not packages & RUNTIME}
    # Parts of boto3, and of ADBC's driver for sqlite.
    assert undeclared == {"botocore", "adbc_driver_manager"}
    unused = RUNTIME - {package for packages in found.values() for package in packages}
    assert unused == set()


def test_every_package_is_explained_and_no_other() -> None:
    """In the first column of the two tables of packages."""
    text = PAGE.read_text()
    tables = re.findall(r"^## (Runtime|Development)\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    named = {
        title: {
            canonicalize_name(name.strip())
            for row in re.findall(r"^\| ([^|]+) \|", body, re.MULTILINE)
            for name in re.sub(r"\(.*\)", "", row).split(",")
            if row not in ("package", "---")
        }
        for title, body in tables
    }
    assert named == {"Runtime": RUNTIME, "Development": direct("dev") - RUNTIME}


def needed(name: str, extras: frozenset[str], *, here: bool) -> Iterator[Requirement]:
    """Returns the packages that a package requires; `here`: on this machine, otherwise on any."""
    for text in requires(name) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None:
            yield requirement
        elif here:
            if any(marker.evaluate({"extra": extra}) for extra in (*extras, "")):
                yield requirement
        elif "extra" not in str(marker) or any(f'"{extra}"' in str(marker) for extra in extras):
            yield requirement


def closure(*, here: bool) -> set[str]:
    """Returns all packages of a development environment."""
    todo = [Requirement(name) for name in sorted(ALL)]
    todo += [Requirement(text) for text in PROJECT["dependencies"]]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            todo += needed(requirement.name, key[1], here=here)
        except PackageNotFoundError:
            continue  # of another system or Python
    return {name for name, _ in seen}


def pinned() -> set[str]:
    return set(locked("dev"))


def test_every_package_of_an_environment_is_pinned() -> None:
    assert closure(here=True) - pinned() == set()


def test_every_pinned_package_is_needed() -> None:
    assert pinned() - closure(here=False) == set()
