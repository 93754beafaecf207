"""The REST endpoint of Tarn."""
