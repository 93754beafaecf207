"""Where the bytes of objects, ranges and metaranges live."""
