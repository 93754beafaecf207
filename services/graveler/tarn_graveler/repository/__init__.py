"""Repositories: their records, and the claiming of names and namespaces."""
