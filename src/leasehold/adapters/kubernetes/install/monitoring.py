"""Monitoring objects for clusters with the operators of Prometheus and Grafana.

Applied only on request, because their kinds are not part of Kubernetes.
"""

import json
from importlib.resources import files

import yaml

from leasehold.adapters.kubernetes.install.dashboard import dashboard
from leasehold.core.names import Wire

METRICS = "leasehold-metrics"
_GROUP = "monitoring.coreos.com/v1"
_JOB = "app.kubernetes.io/name"  # label that becomes the job name, which the alert rules select


def alerts_text() -> str:
    """Return the text of the alert rules as the operator's guide publishes them, with comments."""
    return files("leasehold.adapters.kubernetes.install").joinpath("alerts.yaml").read_text("utf-8")


def dashboard_text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


def monitoring(namespace: str, labels: dict[str, object]) -> list[Wire]:
    def head(name: str) -> Wire:
        return {"name": name, "namespace": namespace, "labels": labels}

    port: Wire = {"name": "probes", "port": 80, "targetPort": "probes"}
    scraped: Wire = {
        "jobLabel": _JOB,
        "selector": {"matchLabels": labels},
        "endpoints": [{"port": "probes", "path": "/metrics", "interval": "30s"}],
    }
    board = {**head("leasehold-dashboard"), "labels": {**labels, "grafana_dashboard": "1"}}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": head(METRICS),
            "spec": {"clusterIP": "None", "selector": labels, "ports": [port]},
        },
        {
            "apiVersion": _GROUP,
            "kind": "ServiceMonitor",
            "metadata": head(METRICS),
            "spec": scraped,
        },
        {
            "apiVersion": _GROUP,
            "kind": "PrometheusRule",
            "metadata": head("leasehold"),
            "spec": yaml.safe_load(alerts_text()),
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": board,
            "data": {"leasehold.json": dashboard_text()},
        },
    ]
