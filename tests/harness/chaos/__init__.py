"""Chaos on real processes: clients, who is hurt, and the judgement, apart from one another.

    wire, s3, metadata     how a client talks; nothing is ever tried again
    ledger, clients        what clients do, and what they were told, as a `tarn.testing.check.history`
    node, sockets, storm   processes, which of them serves which connection, and what is done to them
    look, run              reads at the quiet end, and the verdict of `tarn.testing.check.checker`

Clients know addresses only, so they work on any installation; see docs/design/chaos.md.
"""
