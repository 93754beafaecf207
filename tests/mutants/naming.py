"""Finds a mutation by its name, for processes that a test starts."""

from tests.mutants.applying import Drawn, Mutation
from tests.mutants.written import WRITTEN

__all__ = ["mutation_of"]


def mutation_of(name: str) -> Mutation:
    """Returns the mutation of a name: a written one, or one that an operator makes."""
    for written in WRITTEN:
        if written.name == name:
            return written
    module, _, change = name.partition(":")
    return Drawn(module, change)
