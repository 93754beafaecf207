"""The tidiness of the code (after TigerBeetle's tidy.zig): checks that no reviewer should have to make."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
FILE_BYTES_MAX = 512 * 1024
CODE = ("libs", "services", "cli", "jobs", "bench", "tests", "tools")
NO_PACKAGES = ("services", "tests", "protos", "deploy")
"""Folders that are not Python packages; folders inside them may be."""
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
HOSTS = re.compile(
    r"(pypi\.org|pythonhosted\.org|repo1?\.maven\.apache\.org|proxy\.golang\.org|registry\.npmjs\.org)"
)
TEXT_WITH_HOSTS = {"tests/unit/test_tidy.py"}


def python_files() -> list[Path]:
    return [
        path
        for folder in CODE
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "__pycache__" not in path.parts
    ]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields the functions in a tree; looks at statements only, which is much faster than `ast.walk`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node
            yield from functions(node)


def test_functions_are_short() -> None:
    long = {}
    for path in python_files():
        for node in functions(ast.parse(path.read_text())):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                long[f"{shown(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_modules_have_no_generic_names() -> None:
    assert [shown(path) for path in python_files() if path.stem in FORBIDDEN_NAMES] == []


def test_modules_have_docstrings() -> None:
    """Test modules may do without one: their names say it."""
    silent = [
        shown(path)
        for path in python_files()
        if "tests" not in path.parts and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


@pytest.mark.parametrize("folder", NO_PACKAGES)
def test_folders_of_packages_are_not_packages(folder: str) -> None:
    found = [*(ROOT / folder).glob("__init__.py"), *(ROOT / folder).glob("*/__init__.py")]
    assert [shown(path) for path in found] == []


def test_tests_have_the_names_that_pytest_looks_for() -> None:
    lost = []
    for path in (ROOT / "tests").rglob("*.py"):
        names = {node.name for node in ast.parse(path.read_text()).body if hasattr(node, "name")}
        if any(name.startswith("test_") for name in names) and not path.name.startswith("test_"):
            lost.append(shown(path))
    assert lost == []


def tracked_files() -> list[Path]:
    """Returns the files of the repository, committed or not ignored."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = (ROOT / line for line in done.stdout.splitlines())
    return [path for path in paths if path.is_file()]


def test_files_are_small_and_name_no_registry() -> None:
    large, named = [], []
    for path in tracked_files():
        data = path.read_bytes()
        if len(data) > FILE_BYTES_MAX:
            large.append(shown(path))
        if shown(path) not in TEXT_WITH_HOSTS and HOSTS.search(data.decode(errors="replace")):
            named.append(shown(path))
    assert (large, named) == ([], [])


def descriptors() -> list[FileDescriptor]:
    found = []
    for path in sorted((ROOT / "gen").rglob("*_pb2.py")):
        module = ".".join(path.relative_to(ROOT / "gen").with_suffix("").parts)
        found.append(importlib.import_module(module).DESCRIPTOR)
    return found


def snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_every_rpc_appears_in_a_test() -> None:
    """An rpc appears by its own name or by that of the client's method."""
    words = {
        word
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
        for word in re.findall(r"\w+", path.read_text())
    }
    missing = [
        f"{service.name}.{method.name}"
        for file in descriptors()
        for service in file.services_by_name.values()
        for method in service.methods
        if words.isdisjoint({method.name, snake(method.name)})
    ]
    assert missing == []


def test_every_script_of_the_project_can_be_imported() -> None:
    import tomllib

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for target in scripts.values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name)), target
