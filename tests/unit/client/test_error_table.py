"""The table of errors in the documentation, the exceptions and the code that raises them agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tarn.client import errors
from tarn.client.errors import (
    CredentialNotFoundError,
    NotFoundError,
    TarnCallError,
    UnauthenticatedError,
)
from tarn.client.raising import call_error
from tarn.client.reference import describe
from tarn.core.errors import Kind, Reason, TarnError

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "user" / "grpc.md"
RAISERS = (
    "libs/tarn/core",
    "libs/tarn/client",
    "libs/tarn/rpc",
    "services/graveler",
    "services/auth",
)


def raised() -> Iterator[tuple[Kind, Reason, str]]:
    """Every `TarnError(Kind.…, Reason.…, …)` that the services spell out, with its place."""
    for folder in RAISERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and len(node.args) > 1:
                    kind, reason = (_member(each) for each in node.args[:2])
                    if kind[0] == "Kind" and reason[0] == "Reason":
                        place = f"{path.relative_to(ROOT)}:{node.lineno}"
                        yield Kind[kind[1]], Reason[reason[1]], place


def _member(node: ast.expr) -> tuple[str, str]:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id, node.attr
    return "", ""


def test_the_page_has_the_table_of_the_classes() -> None:
    table = describe()
    assert table in PAGE.read_text(), (
        "the table in docs/user/grpc.md is not what `python -m tarn.client.reference` prints"
    )
    for reason in Reason:
        assert f"| `{reason}` |" in table, f"add a class for {reason} to tarn.client.errors"


def test_every_reason_is_raised_with_the_status_of_its_class() -> None:
    found = list(raised())
    assert len(found) > 100
    wrong = []
    for kind, reason, place in found:
        of_reason = class_of(reason)
        if kind not in (of_reason.KINDS or (of_reason.KIND,)):
            wrong.append(f"{place}: {reason} is raised as {kind.name}")
    assert wrong == []


def class_of(reason: Reason) -> type[TarnCallError]:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    return next(
        each for each in classes if issubclass(each, TarnCallError) and each.REASON is reason
    )


def test_an_error_of_a_reason_with_several_kinds_has_the_class_of_its_own() -> None:
    made = call_error(TarnError(Kind.NOT_FOUND, Reason.CREDENTIAL_NOT_FOUND, "no"), {})
    assert isinstance(made, CredentialNotFoundError)
    assert isinstance(made, NotFoundError)
    assert not isinstance(made, UnauthenticatedError)
