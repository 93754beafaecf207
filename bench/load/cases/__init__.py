"""The cases of the benchmark; `CASES` lists all of them, in the order of the table."""

from __future__ import annotations

from bench.load.cases import (
    bulk,
    cassandra_kv,
    commits,
    compactions,
    connections,
    keys,
    listing,
    memory,
    objects,
    on_cassandra,
    soak,
)
from bench.load.trial import Case

__all__ = ["CASES"]

CASES: tuple[Case, ...] = (
    *objects.CASES,
    *keys.CASES,
    *listing.CASES,
    *bulk.CASES,
    *commits.CASES,
    *compactions.CASES,
    *connections.CASES,
    *memory.CASES,
    *soak.CASES,
    *on_cassandra.CASES,
    *cassandra_kv.CASES,
)
