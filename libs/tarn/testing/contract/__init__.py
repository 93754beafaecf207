"""Contract suites: the tests that every driver of a port must pass."""
