"""Bodies: decoded and verified on receipt (`payload`, `checksums`), and moved between sockets and the block
store (`blocks`).
"""
