"""The branch protocol of `docs/design/protocol.md`: the record, its tokens, writes, reads and commits."""
