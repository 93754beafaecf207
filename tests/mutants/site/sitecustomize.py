"""Python imports this first: a process that a test starts gets the mutant that the test runs with."""

import os
import sys
from pathlib import Path

if os.environ.get("TARN_MUTANT") or os.environ.get("TARN_MUTANTS_HITS"):
    _root = str(Path(__file__).parents[3])
    sys.path.insert(0, _root)
    try:
        from tests.mutants.applying import install_from_environment

        install_from_environment()
    finally:
        sys.path.remove(_root)
