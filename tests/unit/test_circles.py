"""No two modules of a service lead to each other by imports, not even by imports for type checkers."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("auth", "graveler", "gateway", "compactor")


def imports_of(folder: Path) -> dict[str, set[str]]:
    """The modules of a package, each with those of the package that it imports."""
    paths = {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for path in folder.rglob("*.py")
    }
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
        found[module] = (named & paths.keys()) - {module}
    return found


@pytest.mark.parametrize("service", SERVICES)
def test_imports_go_in_no_circle(service: str) -> None:
    found = imports_of(ROOT / "services" / service / f"tarn_{service}")
    assert len(found) > 5
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        pytest.fail(f"a circle: {' → '.join(error.args[1])}")
