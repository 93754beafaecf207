"""The state machine: random operations on a real lake and on a model of dictionaries, compared after each step."""

from machine_merges import Merges
from machine_reads import Reads

__all__ = ["LakeMachine"]


class LakeMachine(Merges, Reads):
    """All rules."""
