"""Parses the parts of a request that need no other service: address, query, headers.

Each parser refuses the same input that S3 refuses, with an `S3Error`.
"""
