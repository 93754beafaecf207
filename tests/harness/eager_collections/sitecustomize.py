"""Shortens the times of collections in the processes of a node, so that a test need not wait for a day.

Python imports a module of this name when it starts; the folder is on the path of such nodes only. The times are
constants of a version (docs/design/collection.md): with these, a collection is safe only while no client writes.
"""

import os
import sys

_SERVERS = ("tarn_cli.node.worker", "tarn_graveler")

if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in _SERVERS:
    from tarn.core.collection import LIMITS

    for _name, _value in (
        ("cutoff_us", int(float(os.environ["COLLECTION_CUTOFF_S"]) * 1e6)),
        ("grace_us", int(float(os.environ["COLLECTION_GRACE_S"]) * 1e6)),
        ("lease_us", int(float(os.environ["COLLECTION_LEASE_S"]) * 1e6)),
    ):
        object.__setattr__(LIMITS, _name, _value)
