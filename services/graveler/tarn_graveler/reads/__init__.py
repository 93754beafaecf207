"""The journal of reads: which objects were looked up, and since when that is known (docs/design/last-read.md)."""
