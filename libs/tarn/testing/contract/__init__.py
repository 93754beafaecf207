"""Contract suites: what every driver of a port must do."""
