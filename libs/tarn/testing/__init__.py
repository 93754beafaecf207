"""Contract suites; part of the package, so that other drivers can be tested with them."""
