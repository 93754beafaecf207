"""Ordered listings: runs of rows, staged changes over them, differences, and the ranges that store them."""
