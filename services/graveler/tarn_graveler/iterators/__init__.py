"""Iterators over the refs, commits and entries of a repository, in order, with seek and paging."""
