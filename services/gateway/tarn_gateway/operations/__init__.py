"""The S3 operations: their table (`table`), one module per family that implements them (`buckets`,
`listing`, `reading`, `putting`, …), and the operations of S3 that Tarn does not offer (`not_offered`).

`python -m tarn_gateway.operations` prints the tables of `docs/user/s3.md`.
"""
