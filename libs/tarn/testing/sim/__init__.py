"""A simulated installation: one seeded event loop, virtual time, stores that misbehave within their rules.

Nothing here knows graveler: `tests/sim` assembles the replicas (docs/design/simulation.md).
"""
