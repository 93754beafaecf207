"""Partitions: their descriptors, their buckets, and the listing of all partitions."""
