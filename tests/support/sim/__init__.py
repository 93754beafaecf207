"""A simulated installation: a seeded event loop, virtual time, and stores that fail as real ones may.

Nothing here depends on graveler: `tests/sim` assembles the replicas (docs/design/simulation.md).
"""
