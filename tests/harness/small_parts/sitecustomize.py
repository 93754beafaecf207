"""Accepts small parts in the processes of a node, so that an object of 10,000 parts needs no 50 GB.

Python imports a module of this name when it starts; the folder is on the path of such nodes only.
"""

import sys

if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in ("tarn_cli.node.worker", "tarn_gateway"):
    from tarn_gateway.operations import completing

    completing.PART_BYTES_MIN = 1  # type: ignore[misc]  # replaces a constant on purpose
