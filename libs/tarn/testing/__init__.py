"""Contract suites, fakes and fault injection: shipped, so that other drivers can be held to them."""
