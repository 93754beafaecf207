"""lakectl, the peer's command line, against a server (`tools/setup lakectl` builds it)."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rest_server import RestServer
from running_tarn import clean_environment

__all__ = ["LAKECTL", "Lakectl"]

LAKECTL: Final = (
    Path(os.environ.get("TARN_CACHE") or Path.home() / ".cache" / "tarn") / "lakefs" / "lakectl"
)
"""Where `tools/setup lakectl` puts it."""


@dataclass(frozen=True, slots=True)
class Lakectl:
    """Runs lakectl in a folder, which is its home, too."""

    server: RestServer
    folder: Path

    def environment(self, **more: str) -> dict[str, str]:
        """Returns variables of all clients of lakeFS: the server and its admin's key, no colours, no retries."""
        mine = {
            "HOME": str(self.folder),
            "LAKECTL_SERVER_ENDPOINT_URL": self.server.url,
            "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": self.server.access_key_id,
            "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": self.server.secret_access_key,
            "LAKECTL_SERVER_RETRIES_ENABLED": "false",
            "NO_COLOR": "1",
        }
        return clean_environment(**{**mine, **more})

    def run(
        self, *arguments: str, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command, without a terminal."""
        return subprocess.run(
            [str(LAKECTL), *arguments],
            env=self.environment(**environment),
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def ok(self, *arguments: str, **options: str) -> str:
        """Runs a command that must succeed, and returns what it prints."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, f"lakectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, *arguments: str, **options: str) -> str:
        """Runs a command that must fail, and returns what it says."""
        done = self.run(*arguments, **options)
        assert done.returncode == 1, f"lakectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr
