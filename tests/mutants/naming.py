"""From a mutation's name to the mutation: how a process that a test starts knows what it runs with."""

from tests.mutants.applying import Drawn, Mutation
from tests.mutants.written import WRITTEN

__all__ = ["mutation_of"]


def mutation_of(name: str) -> Mutation:
    """The mutation of a name: one that is written down, or one that an operator makes."""
    for written in WRITTEN:
        if written.name == name:
            return written
    module, _, change = name.partition(":")
    return Drawn(module, change)
