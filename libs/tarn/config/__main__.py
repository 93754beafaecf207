"""`python -m tarn.config`: prints the table of `docs/operate/configuration.md`."""

from __future__ import annotations

import sys

from tarn.config import describe

if __name__ == "__main__":
    sys.stdout.write(describe())
