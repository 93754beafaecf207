"""`python -m tarn_graveler.heavy FD`: started by a replica, with a socket to it; not meant for people."""

from __future__ import annotations

import sys

from tarn_graveler.heavy.child import main

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
