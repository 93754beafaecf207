"""Applies the mutant of a test in the processes that the test starts; Python imports this module first."""

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
