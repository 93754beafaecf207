"""Which tests share a worker when they run in parallel."""

from __future__ import annotations

__all__ = ["CASSANDRA_FORMS", "FORMS", "group_of"]

FORMS = ("single", "separate")
CASSANDRA_FORMS = ("one", "three")


def group_of(nodeid: str) -> str:
    """Tests of one group run on one worker, one after another.

    Those that use a running Tarn go by its form, so that each form is started once; those of clients of
    REST share one; those on Cassandra share its nodes; other tests with real processes go by their file; those of
    manifests share what kustomize renders; every other test is a group of its own.
    """
    if nodeid.startswith(("tests/contract/test_kv_cassandra", "tests/system/cassandra/")):
        return "cassandra"
    if nodeid.startswith("tests/system/rest/"):
        return "rest"
    if nodeid.startswith("tests/unit/deploy/"):
        return "manifests"
    if not nodeid.startswith("tests/system/"):
        return nodeid
    file, _, rest = nodeid.partition("::")
    parameters = rest.rpartition("[")[2].rstrip("]").split("-") if "[" in rest else []
    if set(CASSANDRA_FORMS) & set(parameters):
        return "cassandra"
    return next((form for form in FORMS if form in parameters), file)
