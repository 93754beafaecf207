"""The Cassandra cluster: connecting to it, its schema, its statements, and the checks when a store is opened."""
