"""Takes a guard away from the workers of a node: shows that a storm misses it.

Python imports a module of this name at its start. The folder is on a node's path only if a test or
`python -m chaos --without GUARD` puts it there; processes other than workers are left as they are.
"""

import os
import sys

if "tarn_cli.node.worker" in sys.orig_argv:
    from chaos.weakness import weaken

    weaken(os.environ["CHAOS_WITHOUT"])
