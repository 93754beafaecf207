"""Records of the audit log, and files of them."""

from __future__ import annotations

from pathlib import Path

from tarn.telemetry.audit.files import AuditFile
from tarn.telemetry.audit.record import AuditRecord, Outcome, line_of

__all__ = ["BEGIN_US", "audit_record", "write_audit"]

BEGIN_US = 1_790_000_000_000_000


def audit_record(time_us: int, **fields: object) -> AuditRecord:
    """Returns a record of a write; its time counts from `BEGIN_US`, and its request is named after it."""
    about = {
        "operation": "s3:PutObject",
        "resource": "repository/lake/branch/main/object/a",
        "outcome": Outcome.OK,
        "reason": "",
        "principal": "ada",
        "access_key_id": "",
        "source": "",
        "request_id": f"r{time_us}",
    }
    return AuditRecord(BEGIN_US + time_us, **{**about, **fields})  # type: ignore[arg-type]


def write_audit(folder: Path, service: str, *records: AuditRecord, size_max: int = 2**30) -> None:
    """Writes records to the files of a service, one after the other."""
    file = AuditFile(folder, service, size_max, 1000)
    for each in records:
        file.write(line_of(service, each))
    file.close()
