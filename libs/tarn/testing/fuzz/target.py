"""What is fuzzed: a check of one parser, and what the fuzzer should know about its inputs."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Check", "Mutation", "PropertyError", "Target", "target_of"]

Check = Callable[[bytes], object]
"""Runs the parser on any bytes and holds its answer to the properties that it promises.

It returns, raises one of the target's refusals, or has found a bug. What it returns is a short word
for the kind of input this was (or None): another word is as interesting to the fuzzer as another line
of code, which helps where the parser is in C and its lines are not seen.
"""

Mutation = Callable[[random.Random, bytes], bytes]
"""Makes another input of one, knowing its structure: fixes a length, a checksum, a signature."""


class PropertyError(Exception):
    """A parser answered, but not what it promises."""


@dataclass(frozen=True, slots=True)
class Target:
    """A parser under test.

    Attributes:
        name: of the target and of its folder in the corpus.
        check: see `Check`.
        refusals: the errors that the parser documents; any other is a bug.
        traced: modules and packages whose lines count as coverage.
        mutations: structure-aware ones, tried beside the general ones.
        tokens: words of the format; the constants in the code of `traced` are added to them.
        input_bytes_max: longer inputs are cut.
        share: of the time that a run gives to each target.
        cpu_s: processor time that one input may take.
        memory_bytes: how much one input may raise the process' peak memory.
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
    """The target that `package.module:NAME` names."""
    module, _, name = reference.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Target), f"{reference} is no target"
    return found
