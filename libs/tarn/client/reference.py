"""`python -m tarn.client.reference` prints the reasons of errors as Markdown, for `docs/user/grpc.md`."""

from __future__ import annotations

import sys

from tarn.client import errors
from tarn.client.failures import TarnCallError
from tarn.core.errors import Reason
from tarn.rpc.wire.errors import code_of

__all__ = ["describe"]


def describe() -> str:
    """Returns the table of all reasons, in the order of `Reason`; ends with a line break."""
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    of_reason = {
        each.REASON: each for each in classes if issubclass(each, TarnCallError) and each.REASON
    }
    lines = [
        "| reason | gRPC status | exception in Python | meaning |",
        "| --- | --- | --- | --- |",
    ]
    lines += [_row(reason, of_reason[reason]) for reason in Reason if reason in of_reason]
    return "\n".join(lines) + "\n"


def _row(reason: Reason, found: type[TarnCallError]) -> str:
    kinds = found.KINDS if found.KIND is None else (found.KIND,)
    status = ", ".join(f"`{code_of(kind).name}`" for kind in kinds)
    meaning = (found.__doc__ or "").splitlines()[0]
    return f"| `{reason}` | {status} | `{found.__name__}` | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write(describe())
