"""Mutation operators: every small change that can be made to one module, each with a stable name.

They are the usual operators (mutmut, cosmic-ray, PIT), chosen for code whose faults are *orders* and
*conditions*: a comparison with the wrong boundary, an inverted condition, a removed guard, a dropped
statement, a dropped keyword argument, two swapped arguments, a lost order, an error of another kind, an
error that is not caught. Texts, log lines, assertions, annotations and constants of a module are not changed:
they say nothing about a promise.

A change modifies the syntax tree in place and never a file. Its name consists of the function, the operator and
the code before and after, so that it survives edits elsewhere in the module.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["BLOCKS", "Change", "changes_of", "statement_lists"]

# Fields of a node that hold statements.
BLOCKS: Final = ("body", "orelse", "finalbody")

_SHOWN_MAX = 160
_COMPARISONS: Final[Mapping[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Final[Mapping[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_OTHER_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_ORDERS: Final = {"reversed": "list", "sorted": "list"}
_OTHER_KINDS: Final = {
    "UNAVAILABLE": "UNKNOWN_OUTCOME",
    "UNKNOWN_OUTCOME": "UNAVAILABLE",
    "NOT_FOUND": "INVALID",
    "INVALID": "NOT_FOUND",
    "ALREADY_EXISTS": "CONFLICT",
    "CONFLICT": "INVALID",
    "FAILED_PRECONDITION": "INVALID",
    "DENIED": "NOT_FOUND",
    "CORRUPT": "INTERNAL",
}
# Calls that only inform operators.
_TELLING: Final = frozenset({"debug", "info", "warning", "error", "exception", "warn"})


@dataclass(frozen=True, slots=True)
class Change:
    """One mutation of one module.

    Attributes:
        name: its name, unique in the module.
        function: qualified name of the function that it changes.
        line: its line in the unchanged module.
        before: the changed code, shortened.
        after: the new code; "" for none.
        apply: makes the change in the tree that it was found in; call it once.
    """

    name: str
    function: str
    line: int
    before: str
    after: str
    apply: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A change without a name."""

    operator: str
    before: ast.AST
    after: ast.AST | None
    apply: Callable[[], None]


def changes_of(tree: ast.Module) -> list[Change]:
    """Returns every change of a module, in the order of its code."""
    seen: Counter[str] = Counter()
    changes = []
    for function, node in _functions(tree):
        for draft in _in_function(node):
            before = _shown(draft.before)
            after = _shown(draft.after) if draft.after is not None else ""
            label = f"{function}: {draft.operator}: {before} -> {after or 'nothing'}"
            seen[label] += 1
            name = label if seen[label] == 1 else f"{label} ({seen[label]})"
            line: int = getattr(draft.before, "lineno", node.lineno)
            changes.append(Change(name, function, line, before, after, draft.apply))
    return changes


def statement_lists(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yields the statement lists that belong directly to a node."""
    for field in BLOCKS:
        block = getattr(node, field, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def _functions(
    node: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yields every function and method that is not nested in another function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, prefix)


def _in_function(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Draft]:
    if function.name in ("__repr__", "__str__") or _is_declaration(function):
        return
    for statement in function.body:
        yield from _in_statement(statement, function.body)


def _is_declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is only a declaration: a method of a protocol, or an overload."""
    return all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        for statement in function.body
    )


def _in_statement(
    statement: ast.stmt, block: list[ast.stmt], *, is_whole_guard: bool = False
) -> Iterator[_Draft]:
    if isinstance(statement, ast.Assert) or _tells(statement) or _is_text(statement):
        return
    if not is_whole_guard:  # its condition is dropped together with it, once
        yield from _dropped(statement, block)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        yield from _in_function(statement)
        return
    yield from _of_node(statement)
    for child in _expressions(statement):
        yield from _in_expression(child)
    for inner in _inner_blocks(statement):
        is_guard = isinstance(statement, ast.If) and not statement.orelse and len(inner) == 1
        for nested in inner:
            yield from _in_statement(nested, inner, is_whole_guard=is_guard)


def _inner_blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield from statement_lists(statement)
    if isinstance(statement, ast.Try | ast.TryStar):
        for handler in statement.handlers:
            yield handler.body
    if isinstance(statement, ast.Match):
        for case in statement.cases:
            yield case.body


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yields the expressions of a statement, without annotations and inner statements."""
    for field, value in ast.iter_fields(statement):
        if field in (*BLOCKS, "handlers", "annotation", "cases"):
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                yield item
    if isinstance(statement, ast.Match):
        for case in statement.cases:
            if case.guard is not None:
                yield case.guard


def _in_expression(node: ast.AST) -> Iterator[_Draft]:
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return  # `zip(…, strict=True)` is an assertion
    yield from _of_node(node)
    for child in ast.iter_child_nodes(node):
        yield from _in_expression(child)


def _of_node(node: ast.AST) -> Iterator[_Draft]:
    for operator in _OPERATORS.get(type(node), ()):
        yield from operator(node)


# --- statements


def _tells(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call):
            return name in _TELLING and "log" in ast.unparse(call.func).lower()
        case _:
            return False


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _dropped(statement: ast.stmt, block: list[ast.stmt]) -> Iterator[_Draft]:
    match statement:
        case ast.Expr():
            operator = "dropped statement"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AugAssign():
            operator = "dropped assignment"
        case ast.If(orelse=[]) if isinstance(
            statement.body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break
        ):
            operator = "dropped guard"
        case ast.Delete(targets=[ast.Name(), *_]):  # marks a local name as unused
            return
        case ast.Delete() | ast.Continue() | ast.Break() | ast.Raise():
            operator = "dropped statement"
        case _:
            return

    def apply() -> None:
        block[_index(block, statement)] = ast.copy_location(ast.Pass(), statement)

    yield _Draft(operator, statement, None, apply)


def _index(block: list[ast.stmt], statement: ast.stmt) -> int:
    return next(at for at, other in enumerate(block) if other is statement)


# --- expressions


def _compared(node: ast.Compare) -> Iterator[_Draft]:
    for at, operator in enumerate(node.ops):
        other = _COMPARISONS[type(operator)]()
        ops = [*node.ops[:at], other, *node.ops[at + 1 :]]
        after = ast.Compare(left=node.left, ops=ops, comparators=node.comparators)

        def apply(ops: list[ast.cmpop] = ops) -> None:
            node.ops = ops

        yield _Draft("comparison", node, after, apply)


def _negated(
    node: ast.If | ast.While | ast.IfExp | ast.comprehension, test: ast.expr
) -> Iterator[_Draft]:
    # Comparisons and `not` have operators of their own.
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return
    if isinstance(test, ast.UnaryOp | ast.Constant):
        return
    after = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)

    def apply() -> None:
        if isinstance(node, ast.comprehension):
            node.ifs[node.ifs.index(test)] = after
        else:
            node.test = after

    yield _Draft("negated condition", test, after, apply)


def _negated_test(node: ast.If | ast.While | ast.IfExp) -> Iterator[_Draft]:
    yield from _negated(node, node.test)


def _negated_ifs(node: ast.comprehension) -> Iterator[_Draft]:
    for test in node.ifs:
        yield from _negated(node, test)


def _and_or(node: ast.BoolOp) -> Iterator[_Draft]:
    other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()

    def apply() -> None:
        node.op = other

    yield _Draft("and/or", node, ast.BoolOp(op=other, values=node.values), apply)


def _without_not(node: ast.UnaryOp) -> Iterator[_Draft]:
    if not isinstance(node.op, ast.Not):
        return
    operand = node.operand

    def apply() -> None:
        node.operand = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=operand), node)

    yield _Draft("dropped not", node, operand, apply)


def _arithmetic(node: ast.BinOp) -> Iterator[_Draft]:
    kind = _ARITHMETIC.get(type(node.op))
    if kind is None or _has_text(node):
        return
    other = kind()

    def apply() -> None:
        node.op = other

    yield _Draft("arithmetic", node, ast.BinOp(node.left, other, node.right), apply)


def _has_text(node: ast.AST) -> bool:
    return any(
        isinstance(child, ast.JoinedStr)
        or (isinstance(child, ast.Constant) and isinstance(child.value, str))
        for child in ast.walk(node)
    )


def _constant(node: ast.Constant) -> Iterator[_Draft]:
    before = node.value
    after: object
    if isinstance(before, bool):
        after = not before
    elif isinstance(before, int):
        after = before + 1
    else:
        return

    def apply() -> None:
        node.value = after

    yield _Draft("constant", node, ast.Constant(value=after), apply)


def _returned(node: ast.Return) -> Iterator[_Draft]:
    value = node.value
    if value is None or isinstance(value, ast.Constant):
        return
    after = ast.copy_location(ast.Constant(value=None), value)

    def apply() -> None:
        node.value = after

    yield _Draft("returned value", node, ast.Return(value=after), apply)


def _called(node: ast.Call) -> Iterator[_Draft]:
    yield from _swapped_arguments(node)
    yield from _without_keywords(node)
    yield from _other_call(node)


def _swapped_arguments(node: ast.Call) -> Iterator[_Draft]:
    if len(node.args) < 2 or any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
        return
    first, second = node.args[:2]
    if ast.dump(first) == ast.dump(second) or _has_text(first) or _has_text(second):
        return
    if isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "cast", "TarnError"):
        return
    args = [second, first, *node.args[2:]]

    def apply() -> None:
        node.args = args

    yield _Draft("swapped arguments", node, ast.Call(node.func, args, node.keywords), apply)


def _without_keywords(node: ast.Call) -> Iterator[_Draft]:
    for keyword in node.keywords:
        if keyword.arg in (None, "strict") or _has_text(keyword.value):
            continue
        rest = [other for other in node.keywords if other is not keyword]

        def apply(rest: list[ast.keyword] = rest) -> None:
            node.keywords = rest

        yield _Draft("dropped keyword", node, ast.Call(node.func, node.args, rest), apply)


def _other_call(node: ast.Call) -> Iterator[_Draft]:
    if not isinstance(node.func, ast.Name):
        return
    name = node.func
    if name.id in _OTHER_CALLS:
        other, keywords = _OTHER_CALLS[name.id], node.keywords
    elif name.id in _ORDERS:
        other, keywords = _ORDERS[name.id], []
    else:
        return
    after = ast.Call(ast.Name(id=other, ctx=ast.Load()), node.args, keywords)

    def apply() -> None:
        name.id, node.keywords = other, keywords

    yield _Draft("other call", node, after, apply)


def _other_kind(node: ast.Attribute) -> Iterator[_Draft]:
    if not (isinstance(node.value, ast.Name) and node.value.id == "Kind"):
        return
    other = _OTHER_KINDS.get(node.attr)
    if other is None:
        return

    def apply() -> None:
        node.attr = other

    yield _Draft("error kind", node, ast.Attribute(node.value, other, ast.Load()), apply)


def _uncaught(node: ast.Try | ast.TryStar) -> Iterator[_Draft]:
    for handler in node.handlers:
        if handler.type is None or isinstance(node, ast.TryStar):
            continue
        nothing = ast.copy_location(ast.Tuple(elts=[], ctx=ast.Load()), handler.type)
        after = ast.ExceptHandler(type=nothing, name=handler.name, body=[ast.Pass()])
        before = ast.ExceptHandler(type=handler.type, name=handler.name, body=[ast.Pass()])
        ast.copy_location(before, handler)

        def apply(handler: ast.ExceptHandler = handler, nothing: ast.Tuple = nothing) -> None:
            handler.type = nothing

        yield _Draft("uncaught error", before, after, apply)


# Each operator applies only to nodes of its type.
_OPERATORS: Final[Mapping[type[ast.AST], tuple[Callable[..., Iterator[_Draft]], ...]]] = {
    ast.Compare: (_compared,),
    ast.If: (_negated_test,),
    ast.While: (_negated_test,),
    ast.IfExp: (_negated_test,),
    ast.comprehension: (_negated_ifs,),
    ast.BoolOp: (_and_or,),
    ast.UnaryOp: (_without_not,),
    ast.BinOp: (_arithmetic,),
    ast.Constant: (_constant,),
    ast.Return: (_returned,),
    ast.Call: (_called,),
    ast.Attribute: (_other_kind,),
    ast.Try: (_uncaught,),
    ast.TryStar: (_uncaught,),
}
