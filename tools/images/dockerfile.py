"""Writes the images of deploy/docker/Dockerfile: a stage for each image of deploy/images.toml, below its last comment.
The stages above, which build what the images contain, are written by hand.

    python tools/images/dockerfile.py [--check]      --check: fails if the file is stale, and changes nothing
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "docker" / "Dockerfile"
TABLE = ROOT / "deploy" / "images.toml"
MARK = "# The images. tools/images/dockerfile.py writes everything below from deploy/images.toml.\n"
USER_LINE = "tarn:x:65532:65532:Tarn:/tmp:/usr/sbin/nologin"
"""The user of jobs: Java finds its name and home only in /etc/passwd, and Hadoop needs a name."""

_CONTENTS = {
    "jars": (
        "COPY --from=cassandra-jars /opt/cassandra/jars /opt/cassandra/jars",
        "COPY tools/cassandra/logback.xml /opt/cassandra/conf/logback.xml",
    ),
    "spark": (
        f"RUN echo '{USER_LINE}' >>/etc/passwd",
        "COPY --from=pyspark /opt/tarn /opt/tarn",
        "COPY --from=spark-jars /opt/spark/jars /opt/spark/jars",
        "COPY deploy/spark/start /opt/spark/start",
    ),
}
_HEALTH = "HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD"
_LABEL = "org.opencontainers.image."


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    before = FILE.read_text()
    after = written(before)
    if given.check:
        return int(before != after)
    FILE.write_text(after)
    return 0


def written(before: str) -> str:
    """Returns the file with the images of the table."""
    table = tomllib.loads(TABLE.read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    head, mark, _ = before.partition(MARK)
    if not mark:
        raise ValueError(f"{FILE} lacks the line: {MARK}")
    return (
        head
        + mark
        + _shared(table, project)
        + "".join(_stage(name, row, table, project) for name, row in table["images"].items())
    )


def _shared(table: dict[str, Any], project: dict[str, Any]) -> str:
    """Returns the stage that images with Tarn alone go on from."""
    lines = [
        "# What the images of the services and of the command line share.",
        "FROM base AS tarn",
        "COPY --from=python /opt/tarn /opt/tarn",
        *_settings({}, table, project, {}),
    ]
    return "\n" + "\n".join(lines) + "\n"


def _stage(name: str, row: dict[str, Any], table: dict[str, Any], project: dict[str, Any]) -> str:
    named = {"title": f"tarn {name}", "description": row["description"]}
    environment = row.get("environment", {})
    contents = next((lines for kind, lines in _CONTENTS.items() if row.get(kind)), None)
    note = [f"# {line}".rstrip() for line in row.get("docker", "").splitlines()]
    if contents is None:
        lines = [*note, f"FROM tarn AS {name}", *_environment(environment), _labels(named)]
    else:
        settings = _settings(environment, table, project, named)
        lines = [*note, f"FROM java AS {name}", *contents, *settings]
    lines += [f"{_HEALTH} {json.dumps(row['health'])}"] if "health" in row else []
    lines += [f"ENTRYPOINT {json.dumps(row['entrypoint'])}"]
    return "\n" + "\n".join(lines) + "\n"


def _settings(
    environment: dict[str, str],
    table: dict[str, Any],
    project: dict[str, Any],
    named: dict[str, str],
) -> list[str]:
    """Returns the settings of every image, with the variables and labels of one."""
    labels = named | {
        "version": "${VERSION}",
        "revision": "${REVISION}",
        "licenses": project["license"],
    }
    return [
        *_environment({**table["environment"], **environment}),
        f"ARG VERSION={project['version']}",
        "ARG REVISION=",
        _labels(labels),
        "WORKDIR /",
        "STOPSIGNAL SIGTERM",
        f"USER {table['user']}",
    ]


def _environment(values: dict[str, str]) -> list[str]:
    return [_joined("ENV", [f"{key}={value}" for key, value in values.items()])] if values else []


def _labels(values: dict[str, str]) -> str:
    return _joined("LABEL", [f'{_LABEL}{key}="{value}"' for key, value in values.items()])


def _joined(instruction: str, values: list[str]) -> str:
    return f"{instruction} " + " \\\n    ".join(values)


if __name__ == "__main__":
    sys.exit(main())
