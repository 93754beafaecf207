"""Repositories: their records, and how a name or a namespace is claimed."""
