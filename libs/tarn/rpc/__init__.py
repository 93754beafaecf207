"""Service processes and the calls between them: clients, servers, wire format, logs and telemetry."""

import os

# gRPC reads this once, when a process makes its first server or channel. With it on, as it is by default, a forked
# process gets gRPC's threads anew. uvloop starts programs by fork and exec. Between the two, these threads work on the
# connections of the process that forked, and they have died there of SIGSEGV, so that the program never ran.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
