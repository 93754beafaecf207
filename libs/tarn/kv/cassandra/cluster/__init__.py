"""The Cassandra cluster: connection, schema, statements, and the checks that opening a store makes."""
