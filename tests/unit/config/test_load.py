"""Where settings come from, what they become, how mistakes are told, and how they become text again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tarn.config import KEYS, Config, ConfigError, load, variables_of
from tarn.config.values import Choice, Form, Number, Sort, Within
from tarn.core.collection import LIMITS
from tarn_gateway.documents.xml_in import COMPLETE_BYTES_MAX

HOME = {"HOME": "/home/ann"}
SECRET = "5e" * 32
# As in the first draft of lakeFS (docs/design/departures.md), on embedded and local stores.
SEED = """
---
logging:
  format: text # or json
  level: DEBUG # or INFO, WARN, ERROR, NONE
  output: "-" # for stdout, or a path to a log file

metadata:
  db:
    type: badger # currently the only supported DB is an embedded badger using a local directory
    badger:
      path: "~/lakefs/metadata"

blockstore:
  type: local
  s3:
    region: us-east-1
    profile: default
    credentials_file: /path/to/.aws/credentials
    credentials:
      access_key_id: "AKIA..."
      access_secret_key: "..."
      session_token: "..."
  local:
    path: ~/lakefs/data

gateways:
  s3:
    listen_address: "0.0.0.0:8000"
    domain_name: s3.example.com
    region: us-east-1

api:
  listen_address: "0.0.0.0:8001"
"""


def of(text: str, tmp_path: Path, env: Mapping[str, str] = HOME) -> Config:
    path = tmp_path / "tarn.yaml"
    path.write_text(text)
    return load(path, env)


def problems(text: str, tmp_path: Path, env: Mapping[str, str] = HOME) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        of(text, tmp_path, env)
    return tuple(line.replace(str(tmp_path) + "/", "") for line in caught.value.problems)


def test_the_example_of_the_first_draft_loads(tmp_path: Path) -> None:
    config = of(SEED, tmp_path)
    assert (config.logging.format, config.logging.level) == ("text", "debug")
    assert config.metadata.db.type == "embedded"
    assert config.metadata.db.embedded.path == Path("/home/ann/lakefs/metadata")
    assert config.blockstore.local.path == Path("/home/ann/lakefs/data")
    assert config.blockstore.s3.credentials.access_key_id == "AKIA..."
    assert config.gateways.s3.listen_address == "0.0.0.0:8000"
    assert config.api.listen_address == "0.0.0.0:8001"


def test_nothing_listens_beyond_this_machine_by_default() -> None:
    config = load(None, HOME)
    addresses = (
        config.gateways.s3.listen_address,
        config.api.listen_address,
        config.rpc_address("auth"),
        config.rpc_address("graveler"),
    )
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert len(set(addresses)) == 4


def test_paths_lie_in_the_data_folder_unless_they_are_named(tmp_path: Path) -> None:
    config = of("data_dir: /srv/tarn\nblockstore: {local: {path: /blocks}}", tmp_path)
    assert config.metadata.db.embedded.file == Path("/srv/tarn/kv/tarn.db")
    assert config.cache.ranges.path == Path("/srv/tarn/cache")
    assert config.blockstore.local.path == Path("/blocks")


def test_the_environment_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    text = "gateways: {s3: {region: eu-west-1, domain_name: a.example}}"
    env = HOME | {"TARN_GATEWAYS_S3_REGION": "ap-south-1"}
    s3 = of(text, tmp_path, env).gateways.s3
    assert (s3.region, s3.domain_name, s3.listen_address) == (
        "ap-south-1",
        "a.example",
        "127.0.0.1:8000",
    )


@pytest.mark.parametrize("url", ["", "https://s3.example.com", "http://[::1]:9000/"])
def test_the_shown_s3_url_is_one(tmp_path: Path, url: str) -> None:
    assert of(f"api: {{s3_url: '{url}'}}", tmp_path).api.s3_url == url


@pytest.mark.parametrize(
    "url", ["s3.example.com", "javascript:alert(1)", "https://x/a", 'http://"']
)
def test_another_shown_s3_url_is_refused(tmp_path: Path, url: str) -> None:
    assert "api.s3_url" in problems(f"api: {{s3_url: '{url}'}}", tmp_path)[0]


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "logging:\n", "logging: {level: }"])
def test_an_empty_file_or_section_changes_nothing(tmp_path: Path, text: str) -> None:
    assert of(text, tmp_path) == load(None, HOME)


@pytest.mark.parametrize(
    "text",
    [
        "metadata: {badger: {path: /x}}",
        "metadata: {db: {badger: {path: /x}}}",
        "metadata: {db: {embedded: {path: /x}}}",
    ],
)
def test_all_spellings_of_the_embedded_path_mean_the_same(tmp_path: Path, text: str) -> None:
    assert of(text, tmp_path).metadata.db.embedded.path == Path("/x")


def test_a_setting_given_twice_is_a_mistake(tmp_path: Path) -> None:
    text = "metadata:\n  badger: {path: /x}\n  db:\n    embedded: {path: /y}\n"
    assert problems(text, tmp_path) == (
        "tarn.yaml, line 4: metadata.db.embedded.path was already given, at tarn.yaml, line 2",
    )
    assert "already given" in problems("workers: 1\nworkers: 2\n", tmp_path)[0]


def test_every_mistake_is_told_with_its_place_and_a_suggestion(tmp_path: Path) -> None:
    text = """\
loging: {level: INFO}
logging:
  level: LOUD
  colour: red
gateways:
  s3: {region: [a, {b: c}]}
graveler: {drop_delay: soon}
workers: 257
region: us-east-1
data_dir: ~bob/tarn
cache: 1GiB
"""
    assert problems(text, tmp_path) == (
        "tarn.yaml, line 1: loging is unknown; did you mean logging?",
        "tarn.yaml, line 4: logging.colour is unknown",
        "tarn.yaml, line 6: gateways.s3.region must be text",
        "tarn.yaml, line 9: region is unknown; did you mean blockstore.s3.region?",
        "tarn.yaml, line 11: cache is a section, so it cannot have a value",
        "tarn.yaml, line 10: data_dir knows `~/`, but not another user's home: '~bob/tarn'",
        "tarn.yaml, line 8: workers must be a whole number from 0 to 256, not '257'",
        "tarn.yaml, line 3: logging.level must be one of DEBUG, INFO, WARN, ERROR, NONE, not 'LOUD'",
        "tarn.yaml, line 7: graveler.drop_delay must be a duration such as 500ms, 10s or 2h, "
        "not 'soon'",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "metadata: {db: {cassandra: {username: tarn}}}",
            "metadata.db.cassandra.password is missing",
        ),
        ("blockstore: {type: s3}", "blockstore.default_namespace_prefix is missing"),
        (
            "blockstore: {type: s3, default_namespace_prefix: 'local://lake'}",
            "blockstore.default_namespace_prefix must be s3://<name>/<name>, not 'local://lake'",
        ),
        (
            "blockstore: {s3: {endpoint: 'https://ann:pa55@example.com'}}",
            "blockstore.s3.endpoint must be `http://host:port` or `https://host:port`, without a path",
        ),
        (
            "blockstore: {s3: {part_size: 4MiB}}",
            "blockstore.s3.part_size must be 5MiB to 1GiB, not",
        ),
        (
            "blockstore: {s3: {deadline: 0s}}",
            "blockstore.s3.deadline must be 1ms or more, not '0s'",
        ),
        ("metadata: {db: {type: postgres}}", "must be one of embedded, cassandra"),
        ("gateways: {s3: {tls: {cert: /c}}}", "gateways.s3.tls.key is missing"),
        ("rpc: {tls: {cert: /c, key: /k}}", "rpc.tls.ca is missing"),
        ("installation: {id: 'a/b'}", "installation.id must be"),
        ("installation: {secret: abc}", "installation.secret must be at least 64 hex digits"),
        ("- a list", "must contain sections"),
        ("? [a, list]\n: 1", "a key must be text, not a list or a section"),
        ("a: b: c", "is not YAML"),
        (f"logging: {'[' * 201}", "more than 200 brackets"),
        ("tracing: {sample_ratio: 1.5}", "must be a number from 0 to 1"),
        ("gateways: {s3: {listen_address: 8000}}", "must be host:port"),
        ("gateways: {s3: {listen_address: 'a:70000'}}", "must be host:port"),
        ("rpc: {allow_plaintext: maybe}", "must be true or false"),
        ("cache: {ranges: {size: 1Gb}}", "must be a size"),
    ],
)
def test_a_mistake_is_reported(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in "\n".join(problems(text, tmp_path))


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.yaml", HOME)


def test_reading_an_endless_file_ends(tmp_path: Path) -> None:
    text = "logging: &again\n  logging: *again\n"
    assert "logging.logging is unknown" in problems(text, tmp_path)[0]


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("TARN_GATEWAYS_S3_REGIONS", "TARN_GATEWAYS_S3_REGION"),
        ("TARN_INSTALATION_SECRET", "TARN_INSTALLATION_SECRET"),
    ],
)
def test_a_misspelt_variable_is_a_mistake(variable: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable}: is unknown; did you mean {near}"):
        load(None, HOME | {variable: "x"})


def test_variables_of_others_are_left_alone() -> None:
    # Variables of the command line, and those that Kubernetes sets for a service named tarn-auth.
    others = {
        "TARN_SERVER": "x",
        "TARN_ACCESS_KEY_ID": "x",
        "TARN_SECRET_ACCESS_KEY": "x",
        "TARN_READY_FD": "3",
        "TARN_AUTH_SERVICE_HOST": "10.0.0.1",
        "TARN_AUTH_PORT_8101_TCP_ADDR": "10.0.0.1",
        "TARN_GATEWAY_PORT": "tcp://10.0.0.1:8000",
    }
    assert load(None, HOME | others) == load(None, HOME)


def test_lists_come_as_lists_or_with_commas(tmp_path: Path) -> None:
    text = "services: {graveler: {addresses: ['a:1', 'b:2']}, auth: {address: 'c:3, d:4'}}"
    services = of(text, tmp_path).services
    assert services.graveler.addresses == ("a:1", "b:2")
    assert services.auth.addresses == ("c:3", "d:4")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000), ("1d", 86_400_000)],
)
def test_durations_become_milliseconds(text: str, milliseconds: int) -> None:
    env = HOME | {"TARN_GRAVELER_CLEANUP_POLL": text}
    assert load(None, env).graveler.cleanup_poll_ms == milliseconds


def test_the_drop_delay_stays_far_below_the_grace_time_of_collections(tmp_path: Path) -> None:
    """A reader that found a token just before it was dropped must be gone when a sweep begins."""
    (problem,) = problems("graveler: {drop_delay: 61m}", tmp_path)
    assert problem.startswith("tarn.yaml, line 1: graveler.drop_delay must be")
    assert "1h" in problem
    longest_ms = of("graveler: {drop_delay: 1h}", tmp_path).graveler.drop_delay_ms
    assert longest_ms * 1000 * 5 < LIMITS.grace_us


@pytest.mark.parametrize(
    ("text", "count"), [("512", 512), ("1kB", 1000), ("64MiB", 64 << 20), ("2 TiB", 2 << 40)]
)
def test_sizes_become_bytes(text: str, count: int) -> None:
    assert load(None, HOME | {"TARN_CACHE_RANGES_SIZE": text}).cache.ranges.size_bytes == count


def test_the_level_none_logs_nothing() -> None:
    logging = load(None, HOME | {"TARN_LOGGING_LEVEL": "NONE"}).logging
    assert (logging.level, logging.threshold, logging.sink) == ("none", "error", "/dev/null")
    assert load(None, HOME | {"TARN_LOGGING_LEVEL": "WARN"}).logging.threshold == "warning"


def test_rpcs_from_other_machines_need_to_be_authenticated(tmp_path: Path) -> None:
    open_to_all = "rpc: {listen_address: '0.0.0.0:8101'}"
    with pytest.raises(ConfigError, match=r"without TLS.*rpc\.tls"):
        of(open_to_all, tmp_path).rpc_address("auth")
    tls = "rpc: {listen_address: '0.0.0.0:8101', tls: {ca: /a, cert: /c, key: /k}}"
    assert of(tls, tmp_path).rpc_address("auth") == "0.0.0.0:8101"
    mesh = HOME | {"TARN_RPC_ALLOW_PLAINTEXT": "true"}
    assert of(open_to_all, tmp_path, mesh).rpc_address("auth") == "0.0.0.0:8101"
    named = "services: {auth: {address: 'auth:8101'}}"
    with pytest.raises(ConfigError):
        of(named, tmp_path).rpc_address("auth")
    assert of(named, tmp_path).rpc_address("graveler") == "127.0.0.1:8102"


def test_secrets_come_from_files_and_show_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    config = load(None, HOME | {"TARN_INSTALLATION_SECRET_FILE": str(file)})
    assert config.installation.secret is not None
    assert config.installation.secret.reveal() == SECRET
    assert SECRET not in repr(config) + str(config.installation.secret)


def test_a_secret_given_twice_or_in_no_file_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    twice = {"TARN_INSTALLATION_SECRET": SECRET, "TARN_INSTALLATION_SECRET_FILE": str(file)}
    assert "already given" in problems("", tmp_path, HOME | twice)[0]
    none = HOME | {"TARN_INSTALLATION_SECRET_FILE": str(tmp_path / "none")}
    assert problems("", tmp_path, none)[0].endswith("none does not exist")


def test_an_optional_secret_without_its_file_is_not_given(tmp_path: Path) -> None:
    """Kubernetes mounts an optional Secret that does not exist as an empty folder."""
    variable = "TARN_INSTALLATION_PREVIOUS_SECRET_FILE"
    assert (
        load(None, HOME | {variable: str(tmp_path / "none")}).installation.previous_secret is None
    )
    typo = HOME | {variable: str(tmp_path / "nowhere" / "none")}
    assert problems("", tmp_path, typo)[0].endswith("none does not exist")
    (tmp_path / "empty").write_text("\n")
    empty = HOME | {variable: str(tmp_path / "empty")}
    assert problems("", tmp_path, empty)[0].endswith("empty) is empty")
    (tmp_path / "binary").write_bytes(b"\xff")
    binary = HOME | {variable: str(tmp_path / "binary")}
    assert problems("", tmp_path, binary)[0].endswith("it is not text")
    folder = HOME | {variable: str(tmp_path)}
    assert problems("", tmp_path, folder)[0].endswith("Is a directory")


@pytest.mark.parametrize("text", ["installation: {secret: hunter2hunter2}", "a: 'hunter2hunter2"])
def test_a_mistake_in_a_secret_does_not_show_it(tmp_path: Path, text: str) -> None:
    assert "hunter2" not in "".join(problems(text, tmp_path))


@pytest.mark.parametrize(("text", "count"), [("5MiB", 5 << 20), ("1GiB", 1 << 30)])
def test_a_bound_is_within(text: str, count: int) -> None:
    config = load(None, HOME | {"TARN_BLOCKSTORE_S3_PART_SIZE": text})
    assert config.blockstore.s3.part_size_bytes == count


EXAMPLES = {
    Sort.TEXT: "some, text",
    Sort.SECRET: "hush",
    Sort.HEX_SECRET: "ab" * 32,
    Sort.PATH: "~/x y",
    Sort.ADDRESS: "[::1]:8",
    Sort.ADDRESSES: "a:1, b:2",
    Sort.FLAG: "no",
    Sort.RATIO: "0.0000123",
    Sort.DURATION: "7m",
    Sort.SIZE: "17MiB",
}
VALID = {
    "TARN_INSTALLATION_ID": "lake-1",
    "TARN_BLOCKSTORE_TYPE": "s3",
    "TARN_BLOCKSTORE_DEFAULT_NAMESPACE_PREFIX": "s3://bucket/x",
    "TARN_BLOCKSTORE_S3_ENDPOINT": "https://s3.example.com",
    "TARN_GRAVELER_REFLOG_RETENTION": "7h",
    "TARN_BACKUP_PLACE": "s3://bucket/backups",
}


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("REFLOG_RETENTION", ("1h", "3650d"), ("59m", "3651d")),
        ("REFLOG_ENTRIES_MAX", ("10", "100000"), ("9", "100001")),
    ],
)
def test_the_bounds_of_reflogs(
    name: str, inside: tuple[str, str], outside: tuple[str, str]
) -> None:
    for text in inside:
        load(None, HOME | {f"TARN_GRAVELER_{name}": text})
    for text in outside:
        with pytest.raises(ConfigError, match=r"graveler\.reflog"):
            load(None, HOME | {f"TARN_GRAVELER_{name}": text})


def test_the_bounds_of_the_drain_timeout() -> None:
    assert load(None, HOME | {"TARN_RPC_DRAIN_TIMEOUT": "0s"}).rpc.drain_timeout_ms == 0
    assert load(None, HOME | {"TARN_RPC_DRAIN_TIMEOUT": "1h"}).rpc.drain_timeout_ms == 3_600_000
    for text in ("61m", "-1s"):
        with pytest.raises(ConfigError, match=r"rpc\.drain_timeout"):
            load(None, HOME | {"TARN_RPC_DRAIN_TIMEOUT": text})


def test_the_bounds_of_the_memory_for_documents() -> None:
    """The largest document has to fit into the half that one user may take."""
    for text, count in (("16MiB", 16 << 20), ("1TiB", 1 << 40)):
        config = load(None, HOME | {"TARN_LIMITS_DOCUMENT_MEMORY": text})
        assert config.limits.document_memory_bytes == count
        assert config.limits.document_memory_bytes // 2 >= COMPLETE_BYTES_MAX
    for text in ("16777215", "1025GiB"):
        with pytest.raises(ConfigError, match=r"limits\.document_memory"):
            load(None, HOME | {"TARN_LIMITS_DOCUMENT_MEMORY": text})


@pytest.mark.parametrize("name", ["anonymous_requests", "anonymous_address_requests"])
def test_the_bounds_of_anonymous_requests(name: str) -> None:
    variable = f"TARN_LIMITS_{name.upper()}"
    for count in (1, 1_000_000):
        assert getattr(load(None, HOME | {variable: str(count)}).limits, name) == count
    for text in ("0", "1000001"):
        with pytest.raises(ConfigError, match=rf"limits\.{name}"):
            load(None, HOME | {variable: text})


def test_signatures_of_version_2_are_off_by_default() -> None:
    assert load(None, HOME).gateways.s3.sigv2 is False
    assert load(None, HOME | {"TARN_GATEWAYS_S3_SIGV2": "true"}).gateways.s3.sigv2 is True


def test_any_rate_of_bodies_may_be_allowed() -> None:
    assert load(None, HOME).limits.body_rate_bytes == 512
    assert load(None, HOME | {"TARN_LIMITS_BODY_RATE": "0"}).limits.body_rate_bytes == 0
    with pytest.raises(ConfigError, match=r"limits\.body_rate"):
        load(None, HOME | {"TARN_LIMITS_BODY_RATE": "-1"})


def test_the_health_address_needs_no_certificate() -> None:
    """It answers nothing but health checks, and probes come from other machines."""
    config = load(None, HOME | {"TARN_RPC_HEALTH_ADDRESS": "0.0.0.0:8090"})
    assert config.rpc.health_address == "0.0.0.0:8090"
    assert config.rpc_address("graveler") == "127.0.0.1:8102"
    with pytest.raises(ConfigError, match=r"rpc\.health_address"):
        load(None, HOME | {"TARN_RPC_HEALTH_ADDRESS": "8090"})


def test_defaults_come_back_from_variables() -> None:
    config = load(None, {"HOME": "/home/ann"})
    assert load(None, {"HOME": "/", **variables_of(config)}) == config


def test_every_setting_comes_back_from_variables() -> None:
    given = dict(VALID)
    for key in KEYS:
        kind = key.kind
        match kind:
            case Choice(words=words):
                example = words[-1]
            case Number(maximum=maximum):
                example = str(maximum)
            case Form():
                continue  # in VALID
            case Within(sort=sort):
                example = EXAMPLES[sort]
            case _:
                example = EXAMPLES[kind]
        given.setdefault(key.variable, example)
    config = load(None, {"HOME": str(Path("/home/ann")), **given})
    assert set(variables_of(config)) == {key.variable for key in KEYS}
    assert load(None, {"HOME": "/", **variables_of(config)}) == config


@pytest.mark.parametrize(
    ("text", "interval_ms"),
    [("off", 0), ("0s", 0), ("Daily", 86_400_000), ("weekly", 604_800_000), ("8h", 28_800_000)],
)
def test_the_interval_of_a_timer_is_a_duration_or_a_word(text: str, interval_ms: int) -> None:
    config = load(None, HOME | {"TARN_LIFECYCLE_GC_INTERVAL": text})
    assert config.lifecycle.gc.interval_ms == interval_ms
    assert str(config.lifecycle.gc.settings).endswith("/tarn/credentials")


@pytest.mark.parametrize("text", ["999ms", "366d", "never", "-1s"])
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"lifecycle\.gc\.interval must be"):
        load(None, HOME | {"TARN_LIFECYCLE_GC_INTERVAL": text})


def test_a_backup_timer_needs_a_place() -> None:
    every = {"TARN_BACKUP_INTERVAL": "daily"}
    with pytest.raises(ConfigError, match=r"backup\.place is missing"):
        load(None, HOME | every)
    with pytest.raises(ConfigError, match=r"backup\.place must be an absolute path"):
        load(None, HOME | every | {"TARN_BACKUP_PLACE": "backups"})
    assert load(None, HOME | every | {"TARN_BACKUP_PLACE": "/b"}).backup.keep == 30
