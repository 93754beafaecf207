"""A repository of a running Tarn, as system tests of versions use it."""

from __future__ import annotations

import json
from typing import Any

from running_tarn import RunningTarn

__all__ = ["VersionedRepository"]


class VersionedRepository:
    """A repository: objects by S3, because that is fast, and versions by the command line."""

    def __init__(self, tarn: RunningTarn, s3: Any, name: str) -> None:
        self.tarn, self.s3, self.name = tarn, s3, name

    def put(self, branch: str, **objects: str) -> None:
        for path, body in objects.items():
            self.s3.put_object(Bucket=self.name, Key=f"{branch}/{path}", Body=body.encode())

    def commit(self, branch: str, message: str, **objects: str) -> str:
        self.put(branch, **objects)
        made = self.tarn.ok("--json", "commit", f"{self.name}/{branch}", "-m", message).json
        return str(made["commit"])

    def branch(self, name: str, source: str = "main") -> None:
        self.tarn.ok("branch", "create", f"{self.name}/{name}", "--from", source)

    def ref(self, ref: str) -> str:
        return f"{self.name}/{ref}"

    def read(self, ref: str) -> dict[str, str]:
        """All objects of a ref."""
        page = self.s3.list_objects_v2(Bucket=self.name, Prefix=f"{ref}/")
        keys = [each["Key"] for each in page.get("Contents", [])]
        return {key.removeprefix(f"{ref}/"): self.get(key) for key in keys}

    def get(self, key: str) -> str:
        return str(self.s3.get_object(Bucket=self.name, Key=key)["Body"].read().decode())

    def head(self, branch: str) -> str:
        return str(self.tarn.ok("--json", "branch", "show", self.ref(branch)).json["commit"])

    def json(self, *arguments: str) -> Any:
        return self.tarn.ok("--json", *arguments).json

    def refused(self, *arguments: str, code: int = 5) -> dict[str, Any]:
        """Runs a command that must fail, and returns its error."""
        done = self.tarn.cli("--json", *arguments)
        assert done.code == code, done
        failure: dict[str, Any] = json.loads(done.err)
        return failure

    def log(self, refs: str, *options: str) -> list[str]:
        """The messages of a log."""
        return [each["message"] for each in self.json("log", self.ref(refs), *options)]
