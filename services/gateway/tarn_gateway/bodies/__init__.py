"""Bodies: decoded and verified on their way in (`payload`, `checksums`), and moved between sockets and the block
store (`blocks`).
"""
