"""What a request says, as far as it can be told without asking anybody: address, query, headers.

Parsers only; each refuses what S3 refuses, by an `S3Error`.
"""
