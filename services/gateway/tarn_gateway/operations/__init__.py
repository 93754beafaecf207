"""The S3 operations: the one table of them (`table`), one module per family that does them (`buckets`,
`listing`, `reading`, `writing`, …), and what S3 has and Tarn does not offer (`not_offered`).

`python -m tarn_gateway.operations` prints the tables of `docs/user/s3.md`.
"""
