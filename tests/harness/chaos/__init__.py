"""Chaos tests on real processes: clients, faults and verdict, in independent modules.

    wire, s3, metadata     connections and requests of a client; requests are never repeated
    ledger, clients        operations of the clients and their answers, as a `tests.support.check.history`
    installation, node     processes of the installation
    sockets                finds the process that serves a connection
    fault_schedule         the faults, and the operations that were open at each
    final_check, run       reads at the quiet end, and the verdict of `tests.support.check.checker`

Clients know only addresses, so they work on any installation; see docs/design/chaos.md.
"""
