"""The state machine: random operations on a real lake and on a model of dictionaries, compared after each step."""

from machine_history import History
from machine_reads import Reads
from machine_rules import Settings

__all__ = ["LakeMachine"]


class LakeMachine(History, Settings, Reads):
    """All rules."""
