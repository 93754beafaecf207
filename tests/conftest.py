"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Random examples find new bugs; under `make test` (ci) a failure must come back the same.
settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.register_profile("nightly", max_examples=20_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
