"""Draws a sample of all mutations: a seed gives the same sample, and nearly the same after an edit.

Each mutation gets a random number from its own name, so an edit of one function changes only the numbers of that
function. A weight multiplies the chance of a module's mutations (Efraimidis and Spirakis: the largest
u^(1/weight) are drawn). Size needs no weight, because a longer module has more mutations.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from tests.mutants.applying import Drawn, module_of, source_files
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.killers import recorded
from tests.mutants.operators import changes_of

__all__ = ["DRAWN", "SEED", "WEIGHTS", "all_drawn", "draw", "lot", "weight_of"]

SEED: Final = 1
DRAWN: Final = 300

_PROTOCOL_WEIGHT: Final = 3.0
WEIGHTS: Final[Sequence[tuple[str, float]]] = (
    # These run only with a real Cassandra, S3 server or process, in `tests/contract` and `tests/system`, which
    # take minutes per mutant.
    ("*.__main__", 0.0),
    ("tarn_graveler.application", 0.0),
    ("tarn_graveler.assembly", 0.0),
    ("tarn_graveler.handlers.requests", 0.0),
    ("tarn_graveler.config", 0.0),
    ("tarn.core.clock", 0.0),
    ("tarn.kv.cassandra.cluster.checks", 0.0),
    ("tarn.kv.cassandra.cluster.connection", 0.0),
    ("tarn.kv.cassandra.rows.groups", 0.0),
    ("tarn.kv.cassandra.partitions.descriptors", 0.0),
    ("tarn.kv.cassandra.rows.partition_queues", 0.0),
    ("tarn.kv.cassandra.partitions.listing", 0.0),
    ("tarn.kv.cassandra.opening", 0.0),
    ("tarn.kv.cassandra.components", 0.0),
    ("tarn.kv.cassandra.cluster.retry", 0.0),
    ("tarn.kv.cassandra.rows.scans", 0.0),
    ("tarn.kv.cassandra.cluster.schema", 0.0),
    ("tarn.kv.cassandra.cluster.session", 0.0),
    ("tarn.kv.cassandra.settings", 0.0),
    ("tarn.kv.cassandra.cluster.statements", 0.0),
    ("tarn.kv.cassandra.store", 0.0),
    ("tarn.kv.opening", 0.0),
    ("tarn.block.opening", 0.0),
    ("tarn.block.s3.*", 0.0),
    # Tools beside the protocol.
    ("tarn.fsck.*", 0.5),
    ("tarn_graveler.heavy.*", 0.5),
    ("tarn.snapshot.store.*", 0.5),
    ("tarn.kv.metered", 0.5),
    ("tarn.kv.mem", 0.5),
    ("tarn.block.mem", 0.5),
    # The code that the promises depend on.
    ("tarn_graveler.*", _PROTOCOL_WEIGHT),
    ("tarn_gateway.operations.*", 2.0),
    ("tarn.objects.*", 2.0),
    # Only written mutations change these.
    ("tarn_gateway.*", 0.0),
    ("tarn.snapshot.*", 0.0),
    ("tarn_cli.*", 0.0),
    ("tarn.journal.*", 0.0),
    ("tarn.core.branch", _PROTOCOL_WEIGHT),
    ("tarn.core.entry", 2.0),
    ("tarn.core.listing.newest", 2.0),
    ("tarn.core.listing.pages", 2.0),
    ("tarn.core.listing.changes", 2.0),
    ("tarn.core.listing.run", 2.0),
    ("tarn.core.listing.segments", 2.0),
    ("tarn.core.listing.spans", 2.0),
    ("tarn.core.listing.three_way", 2.0),
    ("tarn.kv.keys", 2.0),
    ("tarn.kv.fence", _PROTOCOL_WEIGHT),
    ("tarn.kv.embedded.*", 2.0),
    ("tarn.kv.cassandra.*", 2.0),
    ("tarn.block.assembling", 2.0),
    ("tarn.block.applying", 2.0),
    ("tarn.block.merging", 2.0),
    ("tarn.block.committed", 2.0),
    ("tarn.block.differences", 2.0),
    ("tarn.block.local.*", 2.0),
)
# Operators whose mutations any call detects have less weight: they would only raise the score.
_OPERATOR_WEIGHTS: Final = {
    "swapped arguments": 0.25,
    "returned value": 0.4,
    "dropped assignment": 0.5,
    "uncaught error": 2.0,
    "other call": 2.0,
}


def weight_of(module: str) -> float:
    """Returns the weight of a module's mutations; 0: none is drawn. The first matching pattern decides."""
    return next((weight for pattern, weight in WEIGHTS if fnmatchcase(module, pattern)), 1.0)


@cache
def all_drawn() -> tuple[Drawn, ...]:
    """Returns every mutation that the operators find."""
    return tuple(
        Drawn(module, change.name)
        for path in source_files()
        if weight_of(module := module_of(path)) > 0
        for change in changes_of(ast.parse(path.read_text()))
    )


def draw(count: int = DRAWN, seed: int = SEED) -> list[Drawn]:
    """Returns the sample of a seed, by name.

    The sample of the default seed keeps mutations that were tried before: a mutation that has a recorded killer or is
    listed in `equivalent.py` comes before others as long as its code exists. So a module can be renamed, and the
    record with it, and the score stays comparable. The samples of other seeds are new.
    """
    mutations = all_drawn()
    tried = {*recorded(), *EQUIVALENT} if seed == SEED else set()
    lots = {
        mutation: (mutation.name in tried, lot(mutation.name, seed) ** (1 / _weight(mutation)))
        for mutation in mutations
    }
    chosen = sorted(mutations, key=lambda mutation: lots[mutation], reverse=True)[:count]
    return sorted(chosen, key=lambda mutation: mutation.name)


def _weight(mutation: Drawn) -> float:
    operator = mutation.change.split(": ", 2)[1]
    return weight_of(mutation.module) * _OPERATOR_WEIGHTS.get(operator, 1.0)


def lot(name: str, seed: int) -> float:
    """Returns a number in [0, 1) that depends only on a name and a seed."""
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
    return int.from_bytes(digest) / 2**56
