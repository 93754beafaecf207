"""Listings of uncommitted changes: compactions, resets of a part, and the counts that compactors watch."""
