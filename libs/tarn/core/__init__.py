"""Pure decisions and formats. Nothing here does I/O, reads a clock, draws randomness or knows the wire."""
