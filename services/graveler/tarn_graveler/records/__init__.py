"""The records in the KV, a module for each kind: read, and changed by compare-and-set."""
