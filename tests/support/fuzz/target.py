"""Targets of the fuzzer: a check of one parser, and hints about its inputs."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Check", "Mutation", "PropertyError", "Target", "target_of"]

Check = Callable[[bytes], object]
"""Runs the parser on any bytes and checks the properties that it promises.

It returns, raises one of the target's refusals, or has found a bug. It returns a short word for the kind
of input (or None). The fuzzer treats a new word like newly covered code, which helps with parsers in C,
whose lines cannot be traced.
"""

Mutation = Callable[[random.Random, bytes], bytes]
"""Makes an input from another one, using its structure: repairs a length, a checksum or a signature."""


class PropertyError(Exception):
    """A parser returned a result that violates a promised property."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parser under test.

    Attributes:
        name: name of the target and of its folder in the corpus.
        check: see `Check`.
        refusals: the errors that the parser documents; any other error is a bug.
        traced: modules and packages whose lines count as coverage.
        mutations: structure-aware mutations, used beside the general ones.
        tokens: keywords of the format; the constants in the code of `traced` are added to them.
        input_bytes_max: longer inputs are cut.
        share: relative share of this target in the time of a run.
        cpu_s: processor time that one input may take, in seconds.
        memory_bytes: by how much one input may raise the process' peak memory.
    """

    name: str
    check: Check
    refusals: tuple[type[Exception], ...]
    traced: tuple[str, ...]
    mutations: tuple[Mutation, ...] = ()
    tokens: tuple[bytes, ...] = ()
    input_bytes_max: int = 16 * 1024
    share: float = 1.0
    cpu_s: float = 2.0
    memory_bytes: int = 64 << 20


def target_of(reference: str) -> Target:
    """Returns the target named `package.module:NAME`."""
    module, _, name = reference.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Target), f"{reference} is not a fuzzing target"
    return found
