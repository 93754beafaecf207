"""The engine of `tarn gc run --spark`: garbage collection on a Spark cluster (docs/operate/gc.md).

The driver keeps the lease, reads the roots from graveler, and deletes ranges and metaranges behind the fence. Executors
list the bucket, open listings, compare, write the quarantine and delete blocks of data. Everything that touches a block
goes through `tarn.block`, as in all of Tarn: executors need the package `tarn`, and no jars.
"""
