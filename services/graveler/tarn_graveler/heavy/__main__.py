"""`python -m tarn_graveler.heavy FD PRIORITY`: started by a replica, with a socket to it; not meant for people."""

from __future__ import annotations

import sys

from tarn_graveler.heavy.priority import Priority, step_back

if __name__ == "__main__":
    step_back(Priority(sys.argv[2]))
    from tarn_graveler.heavy.child import main

    sys.exit(main(int(sys.argv[1])))
