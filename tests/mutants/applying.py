"""Applies a mutation in a process: an import hook compiles the changed source; no file is written.

An environment variable names the mutant, so that processes which a test starts apply it, too
(`site/sitecustomize.py`, on `PYTHONPATH` while mutants run). Instead, the same hook can record which blocks of
code each test enters (`TARN_MUTANTS_HITS`), from which `mapping.py` makes the test map.

Only the standard library is imported here: the hook runs at the start of every process of a test.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, Protocol

from tests.mutants.operators import Change, changes_of, statement_lists

__all__ = [
    "HITS_ENV",
    "MUTANT_ENV",
    "ROOT",
    "TARGETS",
    "Drawn",
    "MutantGoneError",
    "Mutation",
    "Written",
    "block_of_line",
    "install",
    "install_from_environment",
    "module_of",
    "source_files",
]

ROOT: Final = Path(__file__).parents[2]
MUTANT_ENV: Final = "TARN_MUTANT"
HITS_ENV: Final = "TARN_MUTANTS_HITS"

# The mutated folders, and the prefix of the modules in them. `drawing.py` lists modules of which none is drawn.
TARGETS: Final = {
    "services/graveler/tarn_graveler": "tarn_graveler",
    "services/gateway/tarn_gateway": "tarn_gateway",
    "libs/tarn/core": "tarn.core",
    "libs/tarn/aio": "tarn.aio",
    "libs/tarn/kv": "tarn.kv",
    "libs/tarn/block": "tarn.block",
    "libs/tarn/snapshot": "tarn.snapshot",
    "libs/tarn/gate": "tarn.gate",
    "libs/tarn/objects": "tarn.objects",
    "libs/tarn/fsck": "tarn.fsck",
    "libs/tarn/journal": "tarn.journal",
    "cli/tarn_cli": "tarn_cli",
}
_HIT: Final = "__tarn_hit__"


class MutantGoneError(Exception):
    """The code that a mutation changes no longer exists, or occurs more than once."""


class Mutation(Protocol):
    """A change of one module, which can be compiled."""

    @property
    def name(self) -> str:
        """Its unique name."""
        ...

    @property
    def module(self) -> str:
        """The module that it changes."""
        ...

    def tree(self, source: str) -> ast.Module:
        """Returns the changed module. Raises `MutantGoneError`."""
        ...

    def line(self, source: str) -> int:
        """Returns the line of the change. Raises `MutantGoneError`."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """A mutation that an operator makes."""

    module: str
    change: str

    @property
    def name(self) -> str:
        """The module, and the name of the change in it."""
        return f"{self.module}:{self.change}"

    def tree(self, source: str) -> ast.Module:
        """See `Mutation`."""
        tree = ast.parse(source)
        self._find(tree).apply()
        return tree

    def line(self, source: str) -> int:
        """See `Mutation`."""
        return self._find(ast.parse(source)).line

    def _find(self, tree: ast.Module) -> Change:
        for change in changes_of(tree):
            if change.name == self.change:
                return change
        raise MutantGoneError(f"{self.name}: no such code; draw again with `make mutate`")


@dataclass(frozen=True, slots=True)
class Written:
    """A hand-written mutation: a plausible mistake.

    Attributes:
        name: a short name.
        module: the module that it changes.
        sentence: describes the mistake.
        before: text that occurs exactly once in the module.
        after: the text that replaces it.
    """

    name: str
    module: str
    sentence: str
    before: str
    after: str

    def tree(self, source: str) -> ast.Module:
        """See `Mutation`."""
        self.line(source)
        return ast.parse(source.replace(self.before, self.after))

    def line(self, source: str) -> int:
        """See `Mutation`."""
        if (times := source.count(self.before)) != 1:
            raise MutantGoneError(
                f"{self.name}: its text is {times} times in {self.module}, not once; "
                "write it anew in tests/mutants/written_*.py"
            )
        before = source.partition(self.before)[0]
        first = self.before.lstrip("\n ")
        return (before + self.before[: len(self.before) - len(first)]).count("\n") + 1


def source_files() -> Iterator[Path]:
    """Returns every mutated file."""
    for folder in TARGETS:
        yield from sorted((ROOT / folder).rglob("*.py"))


def module_of(path: Path) -> str:
    """Returns the module name of a source file."""
    for folder, prefix in TARGETS.items():
        if path.is_relative_to(ROOT / folder):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            return ".".join((prefix, *(part for part in parts if part != "__init__")))
    raise ValueError(f"{path} is not mutated")


# --- the hook


class _Loader(SourceFileLoader):
    """Compiles a module from a changed tree, without reading or writing a cache."""

    def __init__(self, fullname: str, path: str, mutation: Mutation | None) -> None:
        super().__init__(fullname, path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        mutation = self._mutation
        tree = mutation.tree(source) if mutation else _instrumented(ast.parse(source), fullname)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_HIT] = _hit
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, mutation: Mutation | None) -> None:
        self._mutation = mutation

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if self._mutation is not None and fullname != self._mutation.module:
            return None
        if not fullname.startswith(tuple(TARGETS.values())):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            return None
        if not Path(spec.origin).is_relative_to(ROOT):
            raise ImportError(f"{fullname} comes from {spec.origin}, not from {ROOT}")
        spec.loader = _Loader(fullname, spec.origin, self._mutation)
        return spec


def install(mutation: Mutation | None) -> None:
    """Applies a mutation in this process, or records hits (None). The module must not be imported yet."""
    if mutation is not None and mutation.module in sys.modules:
        raise RuntimeError(f"{mutation.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutation))


def install_from_environment() -> None:
    """Sets up a process that a test starts; runs before all other code."""
    if name := os.environ.get(MUTANT_ENV):
        from tests.mutants.naming import mutation_of

        install(mutation_of(name))
    elif os.environ.get(HITS_ENV):
        install(None)


# --- which test enters which block


def _instrumented(tree: ast.Module, module: str) -> ast.Module:
    """Inserts a call at the start of each block of each function."""
    blocks = [block for block, _ in _blocks(tree)]
    for number, block in enumerate(blocks):
        is_text = isinstance(block[0], ast.Expr) and isinstance(block[0].value, ast.Constant)
        call = ast.Expr(
            ast.Call(ast.Name(_HIT, ast.Load()), [ast.Constant(f"{module}#{number}")], [])
        )
        ast.copy_location(call, block[0])
        block.insert(1 if is_text else 0, call)
    return tree


def _blocks(tree: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yields the statement lists inside of functions, outer before inner, with their depth."""

    def walk(node: ast.AST, depth: int) -> Iterator[tuple[list[ast.stmt], int]]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            depth = max(depth, 1)
        if depth and not isinstance(node, ast.ClassDef):
            for block in statement_lists(node):
                yield block, depth
        for child in ast.iter_child_nodes(node):
            yield from walk(child, depth + 1 if depth else 0)

    yield from walk(tree, 0)


def block_of_line(tree: ast.Module, line: int) -> int | None:
    """Returns the number of the innermost block that holds a line; None outside of functions."""
    found: tuple[int, int] | None = None
    for number, (block, depth) in enumerate(_blocks(tree)):
        first, last = block[0].lineno, block[-1].end_lineno or block[-1].lineno
        if first <= line <= last and (found is None or depth >= found[0]):
            found = (depth, number)
    return found[1] if found else None


_seen: set[tuple[str, str]] = set()
# The real functions: tests may replace them by failing ones.
_open, _write, _close = os.open, os.write, os.close


def _hit(block: str) -> None:
    """Records that the current test enters a block, once per test and process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (test, block) in _seen:
        return
    _seen.add((test, block))
    if target := os.environ.get(HITS_ENV):
        line = f"{block}\t{test.rpartition(' ')[0]}\n".encode()
        file = _open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _write(file, line)
        finally:
            _close(file)
