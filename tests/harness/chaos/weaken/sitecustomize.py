"""Disables a guard in the workers of a node, to show that a chaos run detects its absence.

Python imports a module of this name when it starts. The folder is on a node's path only if a test or
`python -m chaos --without GUARD` adds it; other processes than workers are not changed.
"""

import os
import sys

if "tarn_cli.node.worker" in sys.orig_argv:
    from chaos.weakness import weaken

    weaken(os.environ["CHAOS_WITHOUT"])
