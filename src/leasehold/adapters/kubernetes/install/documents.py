"""All Kubernetes objects of an installation, in the order of their application.

The single source: `leasehold install` applies or prints them, and the chart is built from them.
"""

import hashlib
from dataclasses import dataclass

from leasehold.adapters.api.crds import definitions
from leasehold.adapters.kubernetes.install.monitoring import monitoring
from leasehold.adapters.kubernetes.install.policies import mutations, policies
from leasehold.adapters.kubernetes.install.roles import CONTROLLER, roles
from leasehold.core.names import GROUP, Wire

PRIORITY = "leasehold"
CONFIG = "leasehold-config"
NO_CONFIG = "{}\n"
CONFIG_FOLDER = "/etc/leasehold"
CACHE_FOLDER = "/var/cache/leasehold"
CONFIG_FILE = "config.yaml"
PROBES = 8080
QUESTIONS = 8443
PAGES = 8444
FRONT_DOOR = "leasehold-front-door"  # Secret: CA of the proxy that names the dashboard's visitors
FRONT_DOOR_FOLDER = "/etc/leasehold-front-door"
CERTIFICATES = "leasehold-query-tls"  # Secret, optional: certificates from another issuer
CERTIFICATES_FOLDER = "/etc/leasehold-certificates"
HOLDER = f"{GROUP}/holder"  # label: the leader's pod, which serves the questions
LABELS: dict[str, object] = {
    "app.kubernetes.io/name": "leasehold",
    "app.kubernetes.io/component": "controller",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an installation. Without an image, the controller runs outside the cluster, and
    `questions_at` is the host and port at which the API server reaches that controller."""

    namespace: str = "leasehold-system"
    image: str = ""
    replicas: int = 3
    config: str = NO_CONFIG  # the controller's configuration file
    pages: bool = False  # serve the dashboard, behind the proxy named in the configuration
    questions_at: tuple[str, int] | None = None
    monitoring: bool = False  # requires the operators of Prometheus and Grafana


def documents(settings: Settings) -> list[Wire]:
    found = [_namespace(settings.namespace), *definitions(), _priority_class()]
    found += [*roles(settings.namespace), *_flows(settings.namespace)]
    found += [*policies(), *mutations()]
    if settings.image:
        found += [_config(settings), _service(settings, "leasehold-query", "questions")]
        if settings.pages:
            found.append(_service(settings, "leasehold-pages", "pages"))
        found += [_deployment(settings), _disruption_budget(settings)]
    elif settings.questions_at is not None:
        found.append(_outside(settings.namespace, *settings.questions_at))
    if settings.image and settings.monitoring:
        found += monitoring(settings.namespace, LABELS)
    return found


def _namespace(name: str) -> Wire:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _priority_class() -> Wire:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY},
        "value": 1000,
        "globalDefault": False,
        "preemptionPolicy": "Never",
        "description": (
            "Pods that hold GPU leases. Their priority is above the default, and they preempt "
            "no other pods."
        ),
    }


def _flows(namespace: str) -> list[Wire]:
    """Return the objects that give requests for tenure and head priority over our own bulk
    requests. Kubernetes' own rule for leader election covers only accounts of kube-system."""
    account = {
        "kind": "ServiceAccount",
        "serviceAccount": {"name": CONTROLLER, "namespace": namespace},
    }
    vital = [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["*"],
            "namespaces": [namespace],
        },
        {
            "apiGroups": [GROUP],
            "resources": ["ledgerheads"],
            "verbs": ["*"],
            "clusterScope": True,
        },
    ]
    return [
        {
            "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
            "kind": "FlowSchema",
            "metadata": {"name": "leasehold-vital"},
            "spec": {
                "matchingPrecedence": 150,
                "priorityLevelConfiguration": {"name": "leader-election"},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [{"subjects": [account], "resourceRules": vital}],
            },
        }
    ]


def _config(settings: Settings) -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "namespace": settings.namespace, "labels": LABELS},
        "data": {CONFIG_FILE: settings.config},
    }


def _deployment(settings: Settings) -> Wire:
    # A changed configuration replaces the pods.
    digest = {f"{GROUP}/config": hashlib.sha256(settings.config.encode()).hexdigest()}
    container = _container(settings)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": CONTROLLER,
            "namespace": settings.namespace,
            "labels": LABELS,
        },
        "spec": {
            "replicas": settings.replicas,
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS, "annotations": digest},
                "spec": {
                    "serviceAccountName": CONTROLLER,
                    "priorityClassName": "system-cluster-critical",
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": LABELS},
                        }
                    ],
                    "containers": [container],
                    "volumes": [
                        {"name": "config", "configMap": {"name": CONFIG}},
                        {"name": "cache", "emptyDir": {}},
                        {
                            "name": "certificates",
                            "secret": {"secretName": CERTIFICATES, "optional": True},
                        },
                        *_only(settings.pages, _front_door()),
                    ],
                },
            },
        },
    }


def _container(settings: Settings) -> Wire:
    def probe(path: str) -> Wire:
        return {"httpGet": {"path": path, "port": "probes"}, "periodSeconds": 10}

    return {
        "name": "controller",
        "image": settings.image,
        "args": [
            "controller",
            "--probes",
            f"0.0.0.0:{PROBES}",
            "--questions",
            f"0.0.0.0:{QUESTIONS}",
            "--certificates",
            CERTIFICATES_FOLDER,
            "--config",
            f"{CONFIG_FOLDER}/{CONFIG_FILE}",
            *_only(settings.pages, "--pages", f"0.0.0.0:{PAGES}"),
        ],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "LEASEHOLD_CACHE", "value": CACHE_FOLDER},
        ],
        # Optional, for instance the credentials of an archive in a bucket.
        "envFrom": [{"secretRef": {"name": "leasehold-archive", "optional": True}}],
        "ports": [
            {"name": "probes", "containerPort": PROBES},
            {"name": "questions", "containerPort": QUESTIONS},
            *_only(settings.pages, {"name": "pages", "containerPort": PAGES}),
        ],
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_FOLDER, "readOnly": True},
            {"name": "cache", "mountPath": CACHE_FOLDER},
            {"name": "certificates", "mountPath": CERTIFICATES_FOLDER, "readOnly": True},
            *_only(
                settings.pages,
                {"name": "front-door", "mountPath": FRONT_DOOR_FOLDER, "readOnly": True},
            ),
        ],
        "livenessProbe": probe("/livez"),
        "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _only(holds: bool, *parts: object) -> tuple[object, ...]:
    return parts if holds else ()


def _front_door() -> Wire:
    return {"name": "front-door", "secret": {"secretName": FRONT_DOOR}}


def _service(settings: Settings, name: str, port: str) -> Wire:
    """Return a Service that selects the leader's pod by label. The API server sends questions
    through one such Service, and the proxy in front of the dashboard sends page requests through
    another."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": settings.namespace},
        "spec": {
            "selector": LABELS | {HOLDER: "true"},
            "ports": [{"name": port, "port": 443, "targetPort": port}],
        },
    }


def _outside(namespace: str, host: str, port: int) -> Wire:
    """Return the Service through which the API server reaches a controller outside the cluster."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "leasehold-query", "namespace": namespace},
        "spec": {
            "type": "ExternalName",
            "externalName": host,
            "ports": [{"name": "questions", "port": port}],
        },
    }


def _disruption_budget(settings: Settings) -> Wire:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": CONTROLLER, "namespace": settings.namespace},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
    }
