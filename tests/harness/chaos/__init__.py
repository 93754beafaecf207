"""Chaos tests on real processes: clients, faults and verdict, in independent modules.

    wire, s3, metadata     connections and requests of a client; requests are never repeated
    ledger, clients        what clients do, and what they were told, as a `tarn.testing.check.history`
    node, sockets, storm   processes, which of them serves which connection, and what is done to them
    look, run              reads at the quiet end, and the verdict of `tarn.testing.check.checker`

Clients know only addresses, so they work on any installation; see docs/design/chaos.md.
"""
