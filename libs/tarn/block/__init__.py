"""The block store: the immutable bytes of objects, ranges and metaranges."""
