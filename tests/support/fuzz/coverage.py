"""Records which lines an input reached, and in which order.

It uses `sys.settrace`, which every supported Python has. Only frames of the target's modules are traced
line by line; a call of any other function costs one dict lookup. A *feature* is a pair of consecutive
lines and its number of occurrences, in powers of two (the idea is AFL's).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import TraceFunction

__all__ = ["Lines", "constants_of", "files_of"]

_T = TypeVar("_T")
_LINES_MAX = 1 << 20
_TOKEN_BYTES = range(1, 41)


def files_of(modules: Iterable[str]) -> tuple[str, ...]:
    """Returns the files of modules, and the folders of packages."""
    files = []
    for name in modules:
        file = importlib.import_module(name).__file__
        assert file is not None, f"{name} has no file"
        path = Path(file)
        files.append(f"{path.parent}/" if path.name == "__init__.py" else file)
    return tuple(files)


class Lines:
    """Traces the lines that are executed during `run`.

    Args:
        files: prefixes of the names of the source files that are traced.
    """

    def __init__(self, files: tuple[str, ...]) -> None:
        self._files = files
        # A number for each traced code object, in the order of first calls: the same in every run.
        self._numbers: dict[CodeType, int] = {}
        self._edges: dict[int, int] = {}
        self._last = 0

    def run(self, work: Callable[[bytes], _T], data: bytes) -> _T:
        """Calls `work` with tracing on."""
        self._edges = {}
        self._last = 0
        sys.settrace(self._enter)
        try:
            return work(data)
        finally:
            sys.settrace(None)

    def features(self) -> set[int]:
        """Returns the features of the last run."""
        # 1, 2, 3, 4-7, 8-15 … times: seven bits at most, below the numbers of both lines.
        return {
            edge << 7 | (count if count < 4 else count.bit_length() + 1)
            for edge, count in self._edges.items()
        }

    def _enter(self, frame: FrameType, _event: str, _arg: object) -> TraceFunction | None:
        code = frame.f_code
        number = self._numbers.get(code)
        if number is None:
            ours = code.co_filename.startswith(self._files)
            number = self._numbers[code] = len(self._numbers) + 1 if ours else 0
        return self._step if number else None

    def _step(self, frame: FrameType, event: str, _arg: object) -> TraceFunction:
        if event == "line":
            here = self._numbers[frame.f_code] * _LINES_MAX + frame.f_lineno
            edge = self._last << 44 | here
            self._edges[edge] = self._edges.get(edge, 0) + 1
            self._last = here
        return self._step


def constants_of(modules: Iterable[str]) -> list[bytes]:
    """Returns the short texts and bytes in the code of modules; most keywords of a format are among them."""
    found: set[bytes] = set()
    for name in modules:
        module = importlib.import_module(name)
        if module.__file__ is None or Path(module.__file__).name == "__init__.py":
            continue
        text = Path(module.__file__).read_text()
        _collect(compile(text, module.__file__, "exec"), found)
    return sorted(found)


def _collect(code: CodeType, found: set[bytes]) -> None:
    waiting = list(code.co_consts)
    while waiting:
        constant = waiting.pop()
        if isinstance(constant, CodeType):
            _collect(constant, found)
        elif isinstance(constant, tuple | frozenset):
            waiting.extend(constant)
        elif isinstance(constant, str):
            waiting.append(constant.encode("utf-8", "replace"))
        elif isinstance(constant, bytes) and len(constant) in _TOKEN_BYTES:
            found.add(constant)
