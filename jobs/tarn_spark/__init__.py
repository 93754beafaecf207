"""PySpark jobs on Tarn. They talk S3 and the command line only: executors never import `tarn`."""
