"""The partitioned key-value store that keeps all mutable metadata."""
