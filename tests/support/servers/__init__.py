"""Real servers for tests: Cassandra, S3, and a small gRPC service."""
