"""The state of S3 multipart uploads, and objects that clients write themselves."""
