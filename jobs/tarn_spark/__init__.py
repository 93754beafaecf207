"""PySpark jobs on Tarn. They use only S3 and the command line: executors never import `tarn`."""
