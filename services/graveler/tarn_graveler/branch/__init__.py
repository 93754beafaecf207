"""The branch protocol of `docs/design/protocol.md`: the layers of a branch; writes, reads, commits and head moves."""
