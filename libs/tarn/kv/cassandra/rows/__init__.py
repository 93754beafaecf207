"""Reading and writing the rows of partitions."""
