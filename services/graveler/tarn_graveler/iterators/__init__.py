"""Iterators over what a repository stores: refs, commits and entries, in order, with seek and paging."""
