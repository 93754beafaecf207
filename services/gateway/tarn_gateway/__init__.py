"""The S3 endpoint of Tarn."""
