"""The optional components of the manifests: garbage collection, metrics, alerts, a collector, an ingress."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner
from manifests import K8S, allowed, named, objects, pods, selects

from tarn.config import Config, load
from tarn.telemetry.metric_table import TABLE
from tarn_cli.app import cli

ROOT = K8S.parents[1]
SERVICES = ("api", "auth", "compactor", "gateway", "graveler")
ADMIN_PORT = 8110
BACKENDS = {"s3": "gateway", "rest": "api"}
"""The Service behind each way into the cluster; the certificate of both has its names (`deploy/k8s/secrets`)."""
with_collection = pytest.mark.parametrize("overlay", ["test", "prod"])
with_each_job = pytest.mark.parametrize(
    ("name", "hours"), [("collection", 8), ("journal-compaction", 24)]
)
"""Jobs of the command line with the key of an administrator, and from one run to the next."""


def container_of(overlay: str, name: str) -> dict[str, Any]:
    (found,) = pods(overlay)[name]["spec"]["containers"]
    return dict(found)


@with_each_job
@with_collection
def test_jobs_run_one_at_a_time_and_end(overlay: str, name: str, hours: int) -> None:
    spec = named(overlay, "CronJob")[name]["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["startingDeadlineSeconds"] > 100, "fewer than 100 missed runs are counted"
    job = spec["jobTemplate"]["spec"]
    assert 0 < job["activeDeadlineSeconds"] < hours * 3600, "it ends before the next run"
    assert job["backoffLimit"] == 0


@with_each_job
@with_collection
def test_the_command_of_a_job_is_understood(overlay: str, name: str, hours: int) -> None:
    minute, hour, *days = named(overlay, "CronJob")[name]["spec"]["schedule"].split()
    assert minute.isdigit()
    assert hour == f"*/{hours}" if hours < 24 else hour.isdigit()
    assert days == ["*", "*", "*"]
    arguments = container_of(overlay, name)["args"]
    temporary = arguments[arguments.index("--temporary") + 1]
    mounts = {each["mountPath"] for each in container_of(overlay, name)["volumeMounts"]}
    assert temporary in mounts
    known = [each if each != temporary else str(Path.cwd()) for each in arguments]
    done = CliRunner().invoke(cli, [*known, "--help"])
    assert done.exit_code == 0, done.output


def named_after(path: str, folder: Path) -> str:
    """Returns a file that holds the path of another one."""
    file = folder / path.replace("/", "-")
    file.write_text(path)
    return str(file)


@with_collection
def test_jobs_have_the_configuration_of_the_services(overlay: str, tmp_path: Path) -> None:
    """The same block store, with the same credentials as graveler."""
    found: list[Any] = []
    for name in ("collection", "journal-compaction", "graveler"):
        container = container_of(overlay, name)
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        volumes = {
            each["name"]: each.get("secret") for each in pods(overlay)[name]["spec"]["volumes"]
        }
        assert volumes["bucket"]["secretName"] == "tarn-bucket"
        assert mounts["bucket"] == "/etc/tarn/bucket"
        (source,) = container["envFrom"]
        variables = dict(named(overlay, "ConfigMap")[source["configMapRef"]["name"]]["data"])
        variables |= {
            each["name"]: named_after(each["value"], tmp_path)
            for each in container["env"]
            if each["name"].startswith("TARN_BLOCKSTORE")
        }
        assert variables["TARN_BLOCKSTORE_S3_CREDENTIALS_ACCESS_SECRET_KEY_FILE"]
        found.append(load(None, {"HOME": "/tmp", **variables}).blockstore)
    assert found[0] == found[1] == found[2]


def commands_of_backups(overlay: str) -> dict[str, dict[str, Any]]:
    """Returns the containers of the backups, by their command."""
    found = [
        container
        for name in ("backup", "backup-check")
        for kind in ("initContainers", "containers")
        for container in pods(overlay)[name]["spec"].get(kind, ())
    ]
    return {each["args"][2]: each for each in found}


def test_backups_are_made_pruned_and_verified_in_one_place_outside_the_storage_namespace(
    tmp_path: Path,
) -> None:
    """With the stores of graveler; only the backup itself has the login of Cassandra."""
    commands = commands_of_backups("prod")
    assert list(commands) == ["create", "prune", "verify"]
    graveler = stores_of(container_of("prod", "graveler"), tmp_path)
    for name, container in commands.items():
        config = stores_of(container, tmp_path)
        place = str(config.backup.place)
        assert container["args"][3] == "$(TARN_BACKUP_PLACE)"
        prefix = config.blockstore.default_namespace_prefix
        assert place.startswith("s3://")
        assert not f"{place}/".startswith(f"{prefix}/")
        assert not f"{prefix}/".startswith(f"{place}/")
        assert config.blockstore == graveler.blockstore
        if name == "create":
            assert config.metadata == graveler.metadata
        mounts = {each["name"] for each in container["volumeMounts"]}
        assert ("cassandra" in mounts) is (name == "create")
        assert "tls" not in mounts, "no service is called"
        done = CliRunner().invoke(cli, [*container["args"], "--help"])
        assert done.exit_code == 0, done.output


def stores_of(container: dict[str, Any], tmp_path: Path) -> Config:
    """Returns the configuration of a container of `overlays/prod`, with examples of its Secrets."""
    (source,) = container["envFrom"]
    variables = dict(named("prod", "ConfigMap")[source["configMapRef"]["name"]]["data"])
    for each in container["env"]:
        if each["name"].startswith(("TARN_BLOCKSTORE", "TARN_METADATA")):
            variables[each["name"]] = named_after(each["value"], tmp_path)
    return load(None, {"HOME": "/tmp", **variables})


def test_backups_end_before_the_next_run_and_do_not_overlap() -> None:
    jobs = {name: named("prod", "CronJob")[name]["spec"] for name in ("backup", "backup-check")}
    for spec in jobs.values():
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert jobs["backup"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] < 3600
    minutes = {spec["schedule"].split()[0] for spec in jobs.values()}
    assert len(minutes) == 2, "of a backup and a prune at the same time one gives up"


def test_backups_reach_the_stores_and_no_service() -> None:
    policies = [each["spec"] for each in named("prod", "NetworkPolicy").values()]
    for name, wanted in (("backup", {53, 443, 9042}), ("backup-check", {53, 443})):
        labels = pods("prod")[name]["metadata"]["labels"]
        ports = {
            port["port"]
            for policy in policies
            if selects(policy["podSelector"], labels)
            for rule in policy.get("egress", ())
            for port in rule["ports"]
        }
        assert ports == wanted


def test_the_admin_port_is_open_only_with_the_component() -> None:
    for overlay, is_open in (("prod", False), ("full", True), ("test", True)):
        for service in SERVICES:
            container = container_of(overlay, service)
            ports = {each["name"]: each["containerPort"] for each in container["ports"]}
            assert (ports.get("admin") == ADMIN_PORT) is is_open
            (source,) = container["envFrom"]
            variables = named(overlay, "ConfigMap")[source["configMapRef"]["name"]]["data"]
            config = load(None, {"HOME": "/tmp", **variables})
            wanted = f"0.0.0.0:{ADMIN_PORT}" if is_open else None
            assert config.telemetry.admin_address == wanted


def labels_of(overlay: str) -> dict[str, dict[str, str]]:
    """Returns the labels of all pods, of a client of Tarn and of a stranger."""
    labels = {name: template["metadata"]["labels"] for name, template in pods(overlay).items()}
    return labels | {"client": {"tarn/client": "true"}, "stranger": {}}


def test_only_scrapers_reach_the_admin_port() -> None:
    labels = labels_of("full")
    found = {each for each in allowed("full", labels) if each[2] == ADMIN_PORT}
    assert found == {("otel-collector", service, ADMIN_PORT) for service in SERVICES}


def test_the_alerts_are_those_of_the_rule_file() -> None:
    (rules,) = named("full", "PrometheusRule").values()
    expected = yaml.safe_load((ROOT / "deploy/telemetry/alerts.yaml").read_text())
    assert rules["spec"] == expected
    assert rules["apiVersion"] == "monitoring.coreos.com/v1"


def test_the_monitor_scrapes_the_admin_port_of_every_service() -> None:
    (monitor,) = named("full", "PodMonitor").values()
    spec = monitor["spec"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert spec.keys() == {"jobLabel", "selector", "podMetricsEndpoints"}
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint.keys() == {"port", "path", "interval", "scrapeTimeout"}
    wanted = spec["selector"]["matchLabels"].items()
    chosen = {
        name
        for name, template in pods("full").items()
        if wanted <= template["metadata"]["labels"].items()
    }
    assert chosen == set(SERVICES)
    for service in SERVICES:
        template = pods("full")[service]
        ports = {each["name"] for each in container_of("full", service)["ports"]}
        assert endpoint["port"] in ports
        # The alerts choose Tarn's processes by the label `job`.
        assert template["metadata"]["labels"][spec["jobLabel"]].startswith("tarn")


def test_the_collector_scrapes_the_service_of_all_pods() -> None:
    container = container_of("full", "otel-collector")
    (mount,) = container["volumeMounts"]
    assert container["args"] == [f"--config={mount['mountPath']}/config.yaml"]
    (volume,) = pods("full")["otel-collector"]["spec"]["volumes"]
    text = named("full", "ConfigMap")[volume["configMap"]["name"]]["data"]["config.yaml"]
    config = yaml.safe_load(text)
    (job,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    (source,) = job["dns_sd_configs"]
    service = named("full", "Service")["metrics"]["spec"]
    assert source["names"] == ["metrics"]
    assert source["port"] == ADMIN_PORT
    assert service["clusterIP"] == "None"
    assert {each["port"] for each in service["ports"]} == {ADMIN_PORT}
    assert config["service"]["pipelines"].keys() == {"metrics", "traces"}
    assert config["service"]["pipelines"]["metrics"]["receivers"] == ["prometheus"]
    for pipeline in config["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(config[kind])


def test_the_services_send_their_spans_to_the_collector() -> None:
    """The endpoint names its Service and port, and the policies let the spans pass."""
    endpoints = set()
    for service in SERVICES:
        (source,) = container_of("full", service)["envFrom"]
        variables = named("full", "ConfigMap")[source["configMapRef"]["name"]]["data"]
        assert variables["OTEL_TRACES_EXPORTER"] == "otlp"
        assert "OTEL_METRICS_EXPORTER" not in variables, "they are scraped"
        endpoints.add(variables["OTEL_EXPORTER_OTLP_ENDPOINT"])
    (url,) = endpoints
    endpoint = urlsplit(url)
    assert endpoint.scheme == "http"
    target = named("full", "Service")[str(endpoint.hostname)]["spec"]
    assert target["selector"].items() <= labels_of("full")["otel-collector"].items()
    (port,) = target["ports"]
    ports = container_of("full", "otel-collector")["ports"]
    numbers = {each["name"]: each["containerPort"] for each in ports}
    assert port["port"] == endpoint.port == numbers[port["targetPort"]]
    text = next(
        each["data"]["config.yaml"]
        for name, each in named("full", "ConfigMap").items()
        if name.startswith("otel-collector")
    )
    config = yaml.safe_load(text)
    (receiver,) = config["service"]["pipelines"]["traces"]["receivers"]
    listening = config["receivers"][receiver]["protocols"]["grpc"]["endpoint"]
    assert listening == f"0.0.0.0:{endpoint.port}"
    found = {
        each for each in allowed("full", labels_of("full")) if each[1:] == ("otel-collector", 4317)
    }
    assert found == {(service, "otel-collector", 4317) for service in SERVICES}
    for overlay in ("dev", "prod"):
        variables = container_of(overlay, "gateway")["envFrom"][0]["configMapRef"]["name"]
        assert "OTEL_TRACES_EXPORTER" not in named(overlay, "ConfigMap")[variables]["data"]


def mounted(overlay: str, name: str) -> dict[str, str]:
    """Returns the files that a container gets from ConfigMaps, by path."""
    volumes = {each["name"]: each for each in pods(overlay)[name]["spec"]["volumes"]}
    found: dict[str, str] = {}
    for mount in container_of(overlay, name)["volumeMounts"]:
        source = volumes[mount["name"]].get("configMap")
        if source is None:
            continue
        data = named(overlay, "ConfigMap")[source["name"]]["data"]
        names = {each["key"]: each["path"] for each in source.get("items", ())} or {
            each: each for each in data
        }
        for key, path in names.items():
            if "subPath" not in mount:
                found[f"{mount['mountPath']}/{path}"] = data[key]
            elif mount["subPath"] == path:
                found[mount["mountPath"]] = data[key]
    return found


def test_the_evaluation_of_metrics_has_the_rules_and_the_dashboard_of_the_checkout() -> None:
    """Prometheus scrapes the Service of all pods, loads the alerts, and Grafana finds it and the dashboard."""
    overlay, telemetry = "dev-monitoring", ROOT / "deploy" / "telemetry"
    files = mounted(overlay, "prometheus")
    arguments = dict(each.split("=", 1) for each in container_of(overlay, "prometheus")["args"])
    config = yaml.safe_load(files[arguments["--config.file"]])
    (rules,) = config["rule_files"]
    assert files[rules] == (telemetry / "alerts.yaml").read_text()
    assert arguments["--enable-feature"] == "exemplar-storage"
    (job,) = config["scrape_configs"]
    assert job["job_name"].startswith("tarn"), "the alerts choose processes by the label `job`"
    (source,) = job["dns_sd_configs"]
    assert source["names"] == ["metrics"]
    assert source["port"] == ADMIN_PORT
    assert "metrics" in named(overlay, "Service")
    files = mounted(overlay, "grafana")
    provisioning = "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load(files[f"{provisioning}/dashboards/dashboards.yaml"])["providers"]
    dashboard = files[f"{provider['options']['path']}/dashboard.json"]
    assert dashboard == (telemetry / "dashboard.json").read_text()
    (source,) = yaml.safe_load(files[f"{provisioning}/datasources/datasources.yaml"])["datasources"]
    url = urlsplit(source["url"])
    (port,) = named(overlay, "Service")[str(url.hostname)]["spec"]["ports"]
    assert port["port"] == url.port


def test_grafana_has_no_password_by_default() -> None:
    env = {each["name"]: each for each in container_of("dev-monitoring", "grafana")["env"]}
    secret = env["GF_SECURITY_ADMIN_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert secret == {"name": "tarn-grafana", "key": "admin_password"}


def test_only_prometheus_reaches_the_admin_ports_of_the_evaluation() -> None:
    labels = labels_of("dev-monitoring")
    found = {each for each in allowed("dev-monitoring", labels) if each[2] == ADMIN_PORT}
    assert found == {("prometheus", service, ADMIN_PORT) for service in SERVICES}


each_way = pytest.mark.parametrize("way", BACKENDS)


@each_way
def test_an_ingress_leads_to_its_service_with_tls(way: str) -> None:
    ingress = named("full", "Ingress")[way]
    (rule,) = ingress["spec"]["rules"]
    (tls,) = ingress["spec"]["tls"]
    assert tls == {"hosts": [rule["host"]], "secretName": f"tarn-tls-{way}"}
    (path,) = rule["http"]["paths"]
    service = path["backend"]["service"]
    ports = {each["name"] for each in named("full", "Service")[service["name"]]["spec"]["ports"]}
    assert service["name"] == BACKENDS[way]
    assert service["port"]["name"] in ports
    notes = ingress["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/proxy-body-size"] == "0", "objects of any size"
    assert notes["nginx.ingress.kubernetes.io/proxy-next-upstream"] == "off", (
        "no write is sent twice"
    )
    prefix = "nginx.ingress.kubernetes.io"
    assert notes[f"{prefix}/backend-protocol"] == "HTTPS"
    assert notes[f"{prefix}/proxy-ssl-verify"] == "on"
    assert notes[f"{prefix}/proxy-ssl-name"] == f"{BACKENDS[way]}.tarn.svc"
    assert notes[f"{prefix}/proxy-ssl-secret"] == f"{ingress['metadata']['namespace']}/tarn-s3-ca"


def test_each_way_into_the_cluster_has_a_host_of_its_own() -> None:
    hosts = {
        name: each["spec"]["rules"][0]["host"] for name, each in named("full", "Ingress").items()
    }
    assert hosts.keys() == BACKENDS.keys()
    assert len(set(hosts.values())) == len(hosts)


@each_way
def test_a_proxy_of_the_gateway_api_checks_the_certificate_of_the_service(way: str) -> None:
    policy = named("full", "BackendTLSPolicy")[way]
    (target,) = policy["spec"]["targetRefs"]
    assert target["name"] == BACKENDS[way]
    service = named("full", "Service")[target["name"]]
    assert target["sectionName"] in {each["name"] for each in service["spec"]["ports"]}
    assert policy["spec"]["validation"] == {
        "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "tarn-s3-ca"}],
        "hostname": f"{BACKENDS[way]}.tarn.svc",
    }


@each_way
def test_the_gateway_api_leads_to_the_service_with_tls(way: str) -> None:
    """One route from the listener with the certificate to the port of the Service, for the same host name."""
    (gate,) = named("full", "Gateway").values()
    route = named("full", "HTTPRoute")[way]
    (parent,) = route["spec"]["parentRefs"]
    (listener,) = (x for x in gate["spec"]["listeners"] if x["name"] == parent["sectionName"])
    assert parent["name"] == gate["metadata"]["name"]
    assert route["spec"]["hostnames"] == [listener["hostname"]]
    assert (listener["protocol"], listener["tls"]["mode"]) == ("HTTPS", "Terminate")
    ingress = named("full", "Ingress")[way]
    assert listener["hostname"] == ingress["spec"]["rules"][0]["host"]
    (certificate,) = listener["tls"]["certificateRefs"]
    assert certificate["name"] == ingress["spec"]["tls"][0]["secretName"]
    (rule,) = route["spec"]["rules"]
    assert "filters" not in rule, "a signature covers the host and the path"
    assert rule["timeouts"] == {"request": "0s"}, "bodies of any size"
    (backend,) = rule["backendRefs"]
    service = named("full", "Service")[backend["name"]]
    assert service["metadata"]["name"] == BACKENDS[way]
    assert backend["port"] in {each["port"] for each in service["spec"]["ports"]}


def test_an_upgrade_opens_no_way_to_the_rest_endpoint() -> None:
    """The components of S3 that installations have bring none; `ingress-rest` and `gateway-api-rest` do."""
    for name in ("ingress", "gateway-api"):
        texts = [file.read_text() for file in (K8S / "components" / name).iterdir()]
        assert not [text for text in texts if "8001" in text or "name: api" in text]


def test_replicas_follow_requests_in_flight_by_metrics_that_exist() -> None:
    """The rules of prometheus-adapter name the gauges that the autoscalers ask for, and the pods emit them."""
    folder = K8S / "components/autoscaling-in-flight"
    (rule,) = yaml.safe_load((folder / "rules.yaml").read_text())["rules"]
    emitted = {f"tarn_{each.name.replace('.', '_')}" for each in TABLE}
    for name, gauge in (
        ("graveler", "tarn_rpc_work_in_flight"),
        ("gateway", "tarn_gateway_in_flight"),
        ("api", "tarn_api_in_flight"),
    ):
        metrics = named("full", "HorizontalPodAutoscaler")[name]["spec"]["metrics"]
        (pods,) = [each["pods"] for each in metrics if each["type"] == "Pods"]
        assert pods["metric"]["name"] == gauge
        assert gauge in emitted
        assert gauge in rule["seriesQuery"]
        assert [each["type"] for each in metrics] == ["Resource", "Pods"]
    assert set(rule["resources"]["overrides"]) == {"namespace", "pod"}


def test_every_optional_component_is_in_the_example() -> None:
    kustomization = yaml.safe_load((K8S / "overlays/full/kustomization.yaml").read_text())
    used = {Path(each).name for each in kustomization["components"]}
    elsewhere = {"cassandra", "bucket", "autoscaling", "collection", "backup", "monitoring"}
    elsewhere |= {"journal"}
    assert used | elsewhere == {folder.name for folder in (K8S / "components").iterdir()}
    assert objects("full")
