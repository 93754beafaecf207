"""Pure decisions and formats: no input or output, no clock, no randomness, no wire."""
