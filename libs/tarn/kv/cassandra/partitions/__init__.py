"""Partitions: their descriptors, their buckets, and the list of all of them."""
