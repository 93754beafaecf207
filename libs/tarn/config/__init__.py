"""Loads the configuration from one YAML file and the environment.

    config = load(Path("tarn.yaml"), os.environ)
    config.gateways.s3.listen_address

The file overrides defaults, and the environment (`TARN_GATEWAYS_S3_LISTEN_ADDRESS`) overrides the file. A
secret may also come from a file of its own (`TARN_INSTALLATION_SECRET_FILE`), which may be replaced while the process
runs (`SecretFiles`). A configuration is plain data:
this package opens nothing that it describes, but it can create the installation's secret. Only the `config.py`
of services and the command line use this package.
"""

from __future__ import annotations

from tarn.config.errors import ConfigError
from tarn.config.key_table import KEYS, Key, describe
from tarn.config.loading import load, variables_of
from tarn.config.secret_changes import (
    SecretChanges,
    SecretFiles,
    certificates_of_blocks,
    certificates_of_endpoint,
    certificates_of_kv,
    changed_secrets,
    contents_of,
)
from tarn.config.secret_file import installation_secret, installation_secrets
from tarn.config.sections import Config, ServiceName
from tarn.config.values import Secret

__all__ = [
    "KEYS",
    "Config",
    "ConfigError",
    "Key",
    "Secret",
    "SecretChanges",
    "SecretFiles",
    "ServiceName",
    "certificates_of_blocks",
    "certificates_of_endpoint",
    "certificates_of_kv",
    "changed_secrets",
    "contents_of",
    "describe",
    "installation_secret",
    "installation_secrets",
    "load",
    "variables_of",
]
