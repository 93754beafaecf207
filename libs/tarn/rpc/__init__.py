"""How services start, talk, fail, log and stop."""
