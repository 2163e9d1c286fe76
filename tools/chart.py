"""Makes `charts/leasehold` from the objects that `leasehold install` applies, and the monitoring
files in the operator's guide. With `--check`, prints which files are stale and writes nothing.
"""

import argparse
import hashlib
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import yaml

from leasehold.adapters.kubernetes.install.documents import Settings, documents
from leasehold.adapters.kubernetes.install.monitoring import alerts_text, dashboard_text
from leasehold.cli.plain_yaml import PlainDumper
from leasehold.core.names import Wire

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "charts" / "leasehold"
GUIDE = ROOT / "docs" / "operator-guide"
# Placeholders in the documents; in the chart, values replace them.
IMAGE, CONFIG, REPLICAS = "CHART-IMAGE", "CHART-CONFIG", 987_654
KEEP = {"helm.sh/resource-policy": "keep"}  # definitions, and with them the ledger
MUTATING = "MutatingAdmissionPolicy"
OF_MONITORING = ("leasehold-metrics", "leasehold", "leasehold-dashboard")

HELPERS = """\
{{- define "leasehold.place" -}}
{{- if ne .Release.Namespace "leasehold-system" -}}
{{- fail "its namespace is fixed: --namespace leasehold-system --create-namespace" -}}
{{- end -}}
{{- if and .Values.pages (not (dig "web" "identityHeader" "" .Values.config)) -}}
{{- fail "pages: set config.web.identityHeader and config.web.clientCA" -}}
{{- end -}}
{{- end -}}
{{- define "leasehold.config" -}}
{{ toYaml .Values.config | printf "%s\\n" }}
{{- end -}}
"""

VALUES = """\
# The controller's image. Without one nothing runs in the cluster: definitions, roles and policies
# are there, and the controller is started elsewhere.
image: ""
replicas: 3
# The controller's configuration, as in a file: docs/configuration.md has its keys.
config: {}
# The dashboard, for a proxy that signs people in: config.web.identityHeader says how it names them.
# The Secret leasehold-front-door says who it is (config.web.clientCA: its file ca.crt, in
# /etc/leasehold-front-door).
pages: false
# What the operators of Prometheus and Grafana read: a ServiceMonitor, rules and a dashboard.
monitoring: false
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    made = files()
    stale = [path for path, text in made.items()
             if not path.exists() or path.read_text("utf-8") != text]  # fmt: skip
    stale += [path for path in CHART.rglob("*") if path.is_file() and path not in made]
    if check:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale; run tools/chart.py")
        sys.exit(1 if stale else 0)
    shutil.rmtree(CHART, ignore_errors=True)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def files() -> dict[Path, str]:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    about = {
        "apiVersion": "v2",
        "name": "leasehold",
        "description": "A GPU scheduler that gives every GPU-second a payer and a reason.",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.30.0-0",
    }
    settings = Settings(image=IMAGE, replicas=REPLICAS, config=CONFIG, monitoring=True)
    plain = {_named(each): each for each in documents(settings)}
    parts: dict[str, list[str]] = {}
    for document in documents(replace(settings, pages=True)):
        name = _file(document)
        if name:
            without = plain.get(_named(document))
            text = _optional(_template(without) if without else "", _template(document))
            parts.setdefault(name, []).append(text)
    templates = CHART / "templates"
    return {
        CHART / "Chart.yaml": yaml.safe_dump(about, sort_keys=False),
        CHART / "values.yaml": VALUES,
        templates / "_place.tpl": HELPERS,
        **{templates / name: _guarded(name, texts) for name, texts in parts.items()},
        GUIDE / "alerts.yaml": alerts_text(),
        GUIDE / "dashboard.json": dashboard_text(),
    }


def _named(document: Wire) -> tuple[str, str, str]:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    return str(document["kind"]), str(metadata.get("namespace", "")), str(metadata["name"])


def _optional(without: str, text: str) -> str:
    """Return `text` with a condition of helm's around the lines that `without` lacks: helm writes
    these only if the value `pages` is true."""
    common = iter([*without.splitlines(), ""])
    wanted = next(common)
    lines: list[str] = []
    is_optional = False
    for line in text.splitlines():
        if is_optional == (line == wanted):
            is_optional = not is_optional
            lines.append("{{- if .Values.pages }}" if is_optional else "{{- end }}")
        if not is_optional:
            wanted = next(common)
        lines.append(line)
    assert not wanted, "pages only add"
    return "\n".join([*lines, *(["{{- end }}"] if is_optional else []), ""])


def _file(document: Wire) -> str:
    """Return the template file that contains the document; "" for the namespace, which helm creates
    itself."""
    kind, metadata = str(document["kind"]), document["metadata"]
    assert isinstance(metadata, dict)
    match kind:
        case "Namespace":
            return ""
        case "CustomResourceDefinition":
            return "definitions.yaml"
        case _ if kind.startswith(MUTATING):
            return "mutations.yaml"
        case "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding":
            return "policies.yaml"
        case "ServiceMonitor" | "PrometheusRule":
            return "monitoring.yaml"
        case "Service" | "ConfigMap" if metadata["name"] in OF_MONITORING:
            return "monitoring.yaml"
        case "Service" | "ConfigMap" | "Deployment" | "PodDisruptionBudget":
            return "controller.yaml"
        case _:
            return "rights.yaml"


def _template(document: Wire) -> str:
    if document["kind"] == "CustomResourceDefinition":
        metadata = document["metadata"]
        assert isinstance(metadata, dict)
        annotations = {**metadata.get("annotations", {}), **KEEP}
        document = {**document, "metadata": {**metadata, "annotations": annotations}}
    text = yaml.dump(document, Dumper=PlainDumper, sort_keys=False, width=100)
    text = _escaped(text)
    for found, value in (
        (f"replicas: {REPLICAS}", "replicas: {{ .Values.replicas }}"),
        (f"image: {IMAGE}", "image: {{ .Values.image | quote }}"),
        (f"config.yaml: {CONFIG}", 'config.yaml: {{ include "leasehold.config" . | quote }}'),
        (_digest(), '{{ include "leasehold.config" . | sha256sum }}'),
    ):
        text = text.replace(found, value)
    assert "CHART-" not in text, text
    assert str(REPLICAS) not in text, text
    return text


def _digest() -> str:
    return hashlib.sha256(CONFIG.encode()).hexdigest()


def _escaped(text: str) -> str:
    """Escape double braces that are part of the text, so that helm does not take them for a
    template."""
    marks = {"{{": '{{ "{{" }}', "}}": '{{ "}}" }}'}
    out, at = [], 0
    while at < len(text):
        found = text[at : at + 2]
        out.append(marks.get(found, text[at]))
        at += 2 if found in marks else 1
    return "".join(out)


def _guarded(name: str, texts: list[str]) -> str:
    body = "---\n".join(texts)
    match name:
        case "mutations.yaml":
            has = f'.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/{MUTATING}"'
            return f"{{{{- if {has} }}}}\n{body}{{{{- end }}}}\n"
        case "controller.yaml":
            return f"{{{{- if .Values.image }}}}\n{body}{{{{- end }}}}\n"
        case "monitoring.yaml":
            return f"{{{{- if and .Values.image .Values.monitoring }}}}\n{body}{{{{- end }}}}\n"
        case "rights.yaml":
            return f'{{{{- include "leasehold.place" . }}}}\n{body}'
        case _:
            return body


if __name__ == "__main__":
    main()
