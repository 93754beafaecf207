"""How every snapshot is kept: chunks, index and manifest, in a folder or a bucket."""
