"""The graph of commits: its order, merge bases, and which commits changed a path."""
