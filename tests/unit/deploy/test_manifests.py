"""The manifests for Kubernetes: valid, safe, and of one mind with the configuration and ARCHITECTURE.md."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from custom_resources import is_custom, validate_custom
from jsonschema import ValidationError
from manifests import (
    JOBS,
    K8S,
    OVERLAYS,
    allowed,
    image_name,
    named,
    objects,
    pod_specs,
    pods,
    selects,
)

from tarn.config import KEYS, Config, load
from tarn.rpc.client.addresses import host_of
from tarn.rpc.server.health_server import LIVE

ROOT = Path(__file__).parents[3]
IMAGES = tomllib.loads((ROOT / "deploy" / "images.toml").read_text())
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
KUBERNETES = "1.36"
SERVICES = ("api", "auth", "compactor", "gateway", "graveler")
MARGIN_SECONDS = 10
"""For the margin of a drain, and for the close that follows it (`tarn.rpc.process.serve`)."""
ARROWS = {
    ("client", "auth", 8101),
    ("client", "graveler", 8102),
    ("client", "compactor", 8103),
    ("client", "gateway", 8000),
    ("client", "api", 8001),
    ("gateway", "auth", 8101),
    ("gateway", "graveler", 8102),
    ("api", "auth", 8101),
    ("api", "graveler", 8102),
    ("graveler", "auth", 8101),
    ("compactor", "auth", 8101),
    ("compactor", "graveler", 8102),
}
TO_STORES = {
    ("auth", "cassandra", 9042),
    ("graveler", "cassandra", 9042),
    ("gateway", "bucket", 8000),
    ("api", "bucket", 8000),
    ("graveler", "bucket", 8000),
    ("cassandra", "cassandra", 7000),
}
FROM_JOBS = {
    "collection": {"bucket": 8000},
    "journal-compaction": {"bucket": 8000},
    "backup": {"bucket": 8000, "cassandra": 9042},
    "backup-check": {"bucket": 8000},
}
"""The stores that CronJobs reach."""
DRIVER = "spark-executors"
"""The account of the driver that starts executors."""

every_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


every_folder = pytest.mark.parametrize("folder", [*OVERLAYS, *JOBS])


def containers(folder: str) -> list[tuple[Any, Any]]:
    """Returns every container of an overlay or of a job, each behind its pod."""
    return [
        (pod, container)
        for pod in pod_specs(folder)
        for container in [*pod.get("initContainers", ()), *pod["containers"]]
    ]


def environment(overlay: str, name: str) -> dict[str, str]:
    """Returns the variables of a service's container; values of Secrets are examples."""
    (container,) = pods(overlay)[name]["spec"]["containers"]
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= named(overlay, "ConfigMap")[source["configMapRef"]["name"]]["data"]
    for each in container.get("env", ()):
        found[each["name"]] = each.get("value", "x" * 20)
    return found


def configuration(overlay: str, name: str, tmp_path: Path) -> Config:
    variables = environment(overlay, name)
    secret = tmp_path / "secret"
    secret.write_text("5e" * 32)
    for key in KEYS:
        if key.file_variable in variables:
            variables[key.file_variable] = str(secret)
    return load(None, {"HOME": "/tmp", **variables})


@every_folder
def test_every_object_is_valid(folder: str) -> None:
    for each in objects(folder):
        if is_custom(each):
            validate_custom(each)
        else:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("PodMonitor", ("spec", "podMetricsEndpoint"), []),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "scrape_timeout"), "10s"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "interval"), "15"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "port"), 8110),
        ("PodMonitor", ("apiVersion",), "monitoring.coreos.com/v2"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "labels", "severity"), 1),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expression"), "up"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "for"), "5 minutes"),
        ("PrometheusRule", ("spec", "group"), []),
        ("Gateway", ("spec", "gatewayClass"), "example"),
        ("Gateway", ("spec", "listeners", 0, "port"), "https"),
        ("Gateway", ("spec", "listeners", 0, "tls", "certificateRef"), {}),
        ("Gateway", ("spec", "listeners", 0, "hostname"), "https://s3.example.com"),
        ("HTTPRoute", ("spec", "rules", 0, "backendRefs", 0, "port"), "s3"),
        ("HTTPRoute", ("spec", "rules", 0, "timeouts", "request"), "0"),
        ("HTTPRoute", ("spec", "parentRefs", 0, "section"), "https"),
        ("HTTPRoute", ("apiVersion",), "gateway.networking.k8s.io/v1beta1"),
        ("BackendTLSPolicy", ("apiVersion",), "gateway.networking.k8s.io/v1alpha3"),
        ("BackendTLSPolicy", ("spec", "targetRef"), {}),
        ("BackendTLSPolicy", ("spec", "validation", "hostname"), "https://gateway"),
        ("BackendTLSPolicy", ("spec", "validation", "caCertificateRefs", 0, "kind"), "Secret"),
    ],
)
def test_a_mistake_in_a_custom_resource_is_found(
    kind: str, path: tuple[str | int, ...], value: object
) -> None:
    found, *_ = copy.deepcopy(named("full", kind)).values()
    validate_custom(found)
    place: Any = found
    for each in path[:-1]:
        place = place[each]
    place[path[-1]] = value
    with pytest.raises(ValidationError):
        validate_custom(found)


@every_overlay
def test_all_services_are_there(overlay: str) -> None:
    assert set(SERVICES) <= set(named(overlay, "Deployment"))
    assert "first-admin" in named(overlay, "Job")


@every_overlay
def test_the_namespace_admits_only_restricted_pods(overlay: str) -> None:
    (namespace,) = named(overlay, "Namespace").values()
    labels = namespace["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    others = [each for each in objects(overlay) if each["kind"] != "Namespace"]
    assert {each["metadata"]["namespace"] for each in others} == {namespace["metadata"]["name"]}


@every_folder
def test_containers_have_no_rights(folder: str) -> None:
    for pod, container in containers(folder):
        name, of_pod, own = container["name"], pod["securityContext"], container["securityContext"]
        assert of_pod["runAsNonRoot"] is True, name
        assert f"{of_pod['runAsUser']}:{of_pod['runAsGroup']}" == IMAGES["user"], name
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert own["allowPrivilegeEscalation"] is False, name
        assert own["readOnlyRootFilesystem"] is True, name
        assert own["capabilities"] == {"drop": ["ALL"]}, name
        assert not own.get("privileged"), name
        # Only the driver of Spark talks to the API server, as an account of its own.
        is_driver = pod.get("serviceAccountName") == DRIVER
        assert pod["automountServiceAccountToken"] is is_driver, name
        assert pod["enableServiceLinks"] is False, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(), name
        assert not any("hostPath" in volume for volume in pod.get("volumes", ())), name


@every_folder
def test_process_1_ends_on_sigterm(folder: str) -> None:
    """The kernel drops the signal for a process 1 without a handler: Python and shells have none."""
    for _, container in containers(folder):
        image = image_name(container["image"])
        if image not in IMAGES["images"]:
            continue  # not ours
        command = container.get("command") or IMAGES["images"][image]["entrypoint"]
        has_handler = image in SERVICES and "command" not in container
        becomes_another = command in (
            ["/bin/bash", "/etc/cassandra/start"],
            ["/bin/bash", "/opt/spark/start"],
        )
        is_trapped = "trap " in command[-1] and " TERM" in command[-1]
        is_tini = command[0] == "/usr/bin/tini"
        assert is_tini or has_handler or becomes_another or is_trapped, container["name"]
    assert "tini" in IMAGES["debian"]


def test_what_the_starting_scripts_become_ends_on_sigterm() -> None:
    """A JVM has a handler, and tini passes the signal on."""
    for place, wanted in (
        ("deploy/spark/start", ['/usr/bin/tini -g -- "$@"; fi', '"$JAVA_HOME/bin/java"']),
        ("deploy/k8s/components/cassandra/start", ["java"]),
    ):
        found = re.findall(r"^(?:if .*)?\bexec (.+)$", (ROOT / place).read_text(), re.MULTILINE)
        assert len(found) == len(wanted)
        for text, begin in zip(found, wanted, strict=True):
            assert text.startswith(begin)


def test_up_keeps_its_data_in_a_folder_of_its_own() -> None:
    """The folder of a volume belongs to root and is open to a group; `tarn up` refuses to keep secrets there."""
    each = [container for folder in [*OVERLAYS, *JOBS] for _, container in containers(folder)]
    running_up = [container for container in each if "up" in container.get("args", ())]
    assert running_up
    for container in running_up:
        folder = next(each["value"] for each in container["env"] if each["name"] == "TARN_DATA_DIR")
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert folder not in mounts
        assert any(folder.startswith(f"{mount}/") for mount in mounts)


@every_folder
def test_containers_have_limits(folder: str) -> None:
    for pod, container in containers(folder):
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container["resources"][kind].keys(), container["name"]
        for volume in pod.get("volumes", ()):
            if "emptyDir" in volume:
                assert "sizeLimit" in volume["emptyDir"], volume["name"]


@every_overlay
def test_images_are_those_that_are_built(overlay: str) -> None:
    """The evaluation takes them as `make images` names them, so that no registry is asked for them."""
    for name, template in pods(overlay).items():
        for container in template["spec"]["containers"]:
            reference, image = container["image"], image_name(container["image"])
            if name in ("otel-collector", "prometheus", "grafana"):
                assert re.search(r":v?\d+\.\d+\.\d+(@|$)", reference), "a version, for people"
                continue
            assert image in IMAGES["images"]
            assert image in {name, "tools"}
            if overlay in ("prod", "full"):
                assert reference.startswith(f"registry.example.com/tarn/{image}@sha256:")
            else:
                assert reference == f"{IMAGES['prefix']}{image}:{VERSION}"


@pytest.mark.parametrize("overlay", ["prod", "full", "dev-monitoring"])
def test_images_come_by_digest(overlay: str) -> None:
    """All but in an evaluation Tarn's own, which come from an archive and no registry."""
    found = {
        container["image"]
        for template in pods(overlay).values()
        for kind in ("initContainers", "containers")
        for container in template["spec"].get(kind, ())
    }
    if overlay == "dev-monitoring":
        found = {each for each in found if not each.startswith(IMAGES["prefix"])}
    loose = {each for each in found if not re.search(r"@sha256:[0-9a-f]{64}$", each)}
    assert loose == set()


@every_overlay
@pytest.mark.parametrize("service", SERVICES)
def test_services_are_probed_where_they_answer(overlay: str, service: str, tmp_path: Path) -> None:
    (container,) = pods(overlay)[service]["spec"]["containers"]
    address = configuration(overlay, service, tmp_path).rpc.health_address
    assert address is not None
    port = int(address.rpartition(":")[2])
    asked = {
        kind: container[f"{kind}Probe"]["grpc"] for kind in ("startup", "readiness", "liveness")
    }
    assert asked == {
        "startup": {"port": port},
        "readiness": {"port": port},
        "liveness": {"port": port, "service": LIVE},
    }


@every_overlay
@pytest.mark.parametrize("service", SERVICES)
def test_a_pod_is_killed_only_after_its_drain(overlay: str, service: str, tmp_path: Path) -> None:
    spec = pods(overlay)[service]["spec"]
    (container,) = spec["containers"]
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = configuration(overlay, service, tmp_path).rpc.drain_timeout_ms / 1000
    assert pause > 0, "endpoints are removed while the pod still accepts connections"
    assert spec["terminationGracePeriodSeconds"] >= pause + drain + MARGIN_SECONDS - 1e-9


def test_commits_of_minutes_survive_a_rollout_in_production(tmp_path: Path) -> None:
    assert configuration("prod", "graveler", tmp_path).rpc.drain_timeout_ms >= 600_000


@every_overlay
def test_variables_are_keys_of_the_configuration(overlay: str) -> None:
    known = {key.variable for key in KEYS} | {f"{key.variable}_FILE" for key in KEYS}
    for service in SERVICES:
        unknown = {name for name in environment(overlay, service) if name not in known}
        # Those of OpenTelemetry (docs/operate/metrics.md).
        assert unknown <= {"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"}


@every_overlay
def test_rates_of_quotas_are_shared_by_the_gateways(overlay: str, tmp_path: Path) -> None:
    """With an autoscaler, its least number: the sum of all gateways is then never below a quota."""
    gateways = configuration(overlay, "gateway", tmp_path).quotas.gateways
    scalers = named(overlay, "HorizontalPodAutoscaler")
    if "gateway" in scalers:
        assert gateways == scalers["gateway"]["spec"]["minReplicas"]
    else:
        assert gateways == named(overlay, "Deployment")["gateway"]["spec"]["replicas"]


def test_cassandra_keeps_as_many_replicas_as_the_component_has_nodes(tmp_path: Path) -> None:
    """The keyspace keeps the factor of its creation, when only the first nodes may run."""
    found = {}
    for overlay in OVERLAYS:
        stores = named(overlay, "StatefulSet")
        if "cassandra" in stores:
            factor = configuration(overlay, "graveler", tmp_path).metadata.db.cassandra
            assert factor.replication_factor == min(stores["cassandra"]["spec"]["replicas"], 3)
            found[overlay] = factor.replication_factor
    assert found == {"dev": 1, "dev-monitoring": 1, "test": 1}
    folder = K8S / "components" / "cassandra"
    (nodes,) = (
        each["spec"]["replicas"]
        for each in yaml.safe_load_all((folder / "cassandra.yaml").read_text())
        if each["kind"] == "StatefulSet"
    )
    component = yaml.safe_load((folder / "kustomization.yaml").read_text())
    (settings,) = (each for each in component["configMapGenerator"] if each["name"] == "tarn")
    assert f"TARN_METADATA_DB_CASSANDRA_REPLICATION_FACTOR={nodes}" in settings["literals"]


@every_overlay
@pytest.mark.parametrize("service", SERVICES)
def test_services_authenticate_each_other(overlay: str, service: str, tmp_path: Path) -> None:
    config = configuration(overlay, service, tmp_path)
    assert not config.rpc.allow_plaintext
    (container,) = pods(overlay)[service]["spec"]["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    files = {config.rpc.tls.ca, config.rpc.tls.cert, config.rpc.tls.key}
    assert {str(file.parent) for file in files if file} == {mounts["tls"]}
    volumes = {each["name"]: each for each in pods(overlay)[service]["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == f"tarn-tls-{service}"


@every_overlay
@pytest.mark.parametrize("service", ["gateway", "api"])
def test_clients_are_served_by_tls(overlay: str, service: str, tmp_path: Path) -> None:
    """By a certificate that is not the one by which auth knows a service; only its two files are mounted."""
    config = configuration(overlay, service, tmp_path)
    section = config.gateways.s3 if service == "gateway" else config.api
    tls = section.tls
    assert tls.cert is not None
    assert tls.key is not None
    spec = pods(overlay)[service]["spec"]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    assert {str(tls.cert.parent), str(tls.key.parent)} == {mounts["endpoint"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["endpoint"]["secret"]["secretName"] == "tarn-tls-endpoint"
    assert {each["path"] for each in volumes["endpoint"]["secret"]["items"]} == {
        tls.cert.name,
        tls.key.name,
    }
    (port,) = named(overlay, "Service")[service]["spec"]["ports"]
    assert port["appProtocol"] == "https"
    numbers = {each["name"]: each["containerPort"] for each in spec["containers"][0]["ports"]}
    assert section.listen_address == f"0.0.0.0:{numbers[port['targetPort']]}"


@every_overlay
def test_the_bucket_is_reached_by_tls(overlay: str, tmp_path: Path) -> None:
    """Whoever has its keys may check its certificate by an authority of its own."""
    for name, template in pods(overlay).items():
        volumes = {each["name"]: each for each in template["spec"].get("volumes", ())}
        if "bucket" not in volumes:
            continue
        assert volumes["bucket-ca"]["secret"]["secretName"] == "tarn-bucket-ca"
        for container in template["spec"]["containers"]:
            mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
            assert mounts["bucket-ca"] == "/etc/tarn/bucket-ca", name
    s3 = configuration(overlay, "gateway", tmp_path).blockstore.s3
    assert s3.endpoint is None or s3.endpoint.startswith("https://")
    if "bucket" in named(overlay, "StatefulSet"):
        assert s3.endpoint == "https://bucket:8000"
        assert str(s3.tls.ca) == "/etc/tarn/bucket-ca/ca.crt"
        env = environment(overlay, "bucket")
        mounts = {
            each["name"]: each["mountPath"]
            for each in pods(overlay)["bucket"]["spec"]["containers"][0]["volumeMounts"]
        }
        for part, file in (("CERT", "tls.crt"), ("KEY", "tls.key")):
            assert env[f"TARN_GATEWAYS_S3_TLS_{part}"] == f"{mounts['endpoint']}/{file}"


@every_folder
def test_nothing_speaks_s3_without_tls(folder: str) -> None:
    """In no variable, command or setting of any object. Spans are no S3 (docs/operate/metrics.md), nor are queries."""
    text = yaml.safe_dump_all(objects(folder))
    found = set(re.findall(r"http://([a-z0-9.-]+:\d+)", text))
    assert found <= {"otel-collector:4317", "prometheus:9090"}


@every_overlay
def test_addresses_name_services_and_their_ports(overlay: str, tmp_path: Path) -> None:
    """The certificates are for these names: see deploy/k8s/secrets."""
    places = configuration(overlay, "gateway", tmp_path).services
    for service in ("auth", "graveler", "compactor"):
        (address,) = getattr(places, service).addresses
        assert host_of(address) == service
        spec = named(overlay, "Service")[service]["spec"]
        assert spec["clusterIP"] == "None", "calls are spread over pods by their addresses"
        (port,) = spec["ports"]
        (container,) = pods(overlay)[service]["spec"]["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        own = configuration(overlay, service, tmp_path).rpc_address(service)
        numbers = {int(text.rpartition(":")[2]) for text in (address, own)}
        assert numbers == {port["port"], ports[port["targetPort"]]}


@every_overlay
def test_only_auth_and_the_first_admin_have_the_secret_of_the_installation(overlay: str) -> None:
    holders = {
        name
        for name, template in pods(overlay).items()
        for volume in template["spec"].get("volumes", ())
        if volume.get("secret", {}).get("secretName") == "tarn-installation"
    }
    assert holders == {"auth", "first-admin"}


@every_overlay
def test_workloads_have_an_account_a_budget_and_spread(overlay: str) -> None:
    accounts = named(overlay, "ServiceAccount")
    budgets = [each["spec"] for each in named(overlay, "PodDisruptionBudget").values()]
    for service in SERVICES:
        template = pods(overlay)[service]
        spec, labels = template["spec"], template["metadata"]["labels"]
        assert accounts[spec["serviceAccountName"]]["automountServiceAccountToken"] is False
        assert [b["maxUnavailable"] for b in budgets if selects(b["selector"], labels)] == [1]
        for constraint in spec["topologySpreadConstraints"]:
            assert selects(constraint["labelSelector"], labels)


@every_overlay
def test_a_changed_setting_rolls_the_pods(overlay: str) -> None:
    """The name of the ConfigMap has a hash of its content."""
    for service in SERVICES:
        (container,) = pods(overlay)[service]["spec"]["containers"]
        (source,) = container["envFrom"]
        assert re.fullmatch(r"tarn-[a-z0-9]{10}", source["configMapRef"]["name"])


@every_overlay
def test_the_network_has_the_arrows_of_the_architecture_and_no_other(overlay: str) -> None:
    labels = {name: template["metadata"]["labels"] for name, template in pods(overlay).items()}
    admin = labels.pop("first-admin")
    if "otel-collector" in labels or overlay == "test":
        labels["otel-collector"] = {"tarn/scraper": "true", **labels.get("otel-collector", {})}
    labels |= {"client": {"tarn/client": "true"}, "stranger": {}}
    assert selects({"matchLabels": labels["client"]}, admin)
    expected = ARROWS | (TO_STORES if "cassandra" in labels else set())
    for job in {"collection", "journal-compaction"} & set(labels):
        expected |= {(job, target, port) for name, target, port in ARROWS if name == "client"}
    for name, stores in FROM_JOBS.items():
        if {name, *stores} <= set(labels):
            expected |= {(name, store, port) for store, port in stores.items()}
    if overlay == "full":
        expected |= {("otel-collector", service, 8110) for service in SERVICES}
        expected |= {(service, "otel-collector", 4317) for service in SERVICES}
    if "prometheus" in labels:
        expected |= {("prometheus", service, 8110) for service in SERVICES}
        expected |= {("grafana", "prometheus", 9090)}
    assert allowed(overlay, labels) == expected


@every_overlay
def test_everything_is_denied_first(overlay: str) -> None:
    spec = named(overlay, "NetworkPolicy")["default-deny"]["spec"]
    assert spec == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@every_overlay
def test_headless_services_are_not_scaled_by_hand_and_by_machine(overlay: str) -> None:
    for name in named(overlay, "HorizontalPodAutoscaler"):
        assert "replicas" not in named(overlay, "Deployment")[name]["spec"]


def test_commands_in_the_texts_name_workloads_that_exist() -> None:
    """`kubectl exec deploy/gateway` of the operator's pages and of the README."""
    found: set[str] = set()
    for file in [K8S / "README.md", *(ROOT / "docs").rglob("*.md")]:
        found |= set(re.findall(r"\bexec (?:-it )?deploy/([a-z-]+)", file.read_text()))
    assert found == {"auth", "gateway", "graveler"}
    assert found <= set(named("prod", "Deployment"))


def test_the_readme_names_every_folder() -> None:
    text = (K8S / "README.md").read_text()
    for folder in (
        each for part in ("components", "overlays", "jobs") for each in (K8S / part).iterdir()
    ):
        assert f"{folder.parent.name}/{folder.name}" in text
