"""A Grafana dashboard, defined as rows of panels.

`monitoring` installs it as a ConfigMap; the same text is published with the operator's guide.
"""

from dataclasses import dataclass

from leasehold.core.names import Wire

WIDTH, HEIGHT = 24, 8  # Grafana's grid, and the height of a panel
SOURCE: Wire = {"type": "prometheus", "uid": "${source}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel of the dashboard. `legend` is Grafana's template for the name of each line."""

    title: str
    expression: str
    legend: str
    unit: str = "short"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "What runs, and who pays",
        (
            Panel("Open leases", "sum by (role) (leasehold_leases_open)", "{{role}}"),
            Panel(
                "GPUs in use, by owner",
                'sum by (owner) (leasehold_budget_gpus{state="used"})',
                "{{owner}}",
            ),
            Panel(
                "GPUs free, by envelope",
                'leasehold_budget_gpus{state="free"}',
                "{{owner}} {{envelope}}",
            ),
        ),
    ),
    (
        "Money",
        (
            Panel(
                "GPU-hours left",
                'leasehold_budget_gpu_hours{state="left"}',
                "{{owner}} {{envelope}}",
            ),
            Panel(
                "Overdrawn GPUs",
                'leasehold_budget_gpus{state="overdrawn"} > 0',
                "{{owner}} {{envelope}}",
            ),
            Panel("Borrowed GPUs", "leasehold_borrowed_gpus_current", "{{owner}} from {{sponsor}}"),
        ),
    ),
    (
        "Queue and preemptions",
        (
            Panel(
                "Next planned starts",
                "sort(leasehold_reservation_seconds_until_start)",
                "{{run}}",
                "s",
            ),
            Panel(
                "Leases closed per hour, by reason",
                "sum by (reason) (increase(leasehold_leases_closed_total[1h]))",
                "{{reason}}",
            ),
            Panel(
                "Resolutions and draws per hour",
                "sum by (cause) (increase(leasehold_resolver_invocations_total[1h]))"
                " or sum(increase(leasehold_resolver_lottery_draws_total[1h]))",
                "{{cause}}",
            ),
        ),
    ),
    (
        "The control plane",
        (
            Panel(
                "Decision time, 99th percentile",
                "histogram_quantile(0.99, sum by (le) (rate(leasehold_decide_seconds_bucket[5m])))",
                "p99",
                "s",
            ),
            Panel(
                "Commit time, 99th percentile",
                "histogram_quantile(0.99, sum by (le) (rate(leasehold_commit_seconds_bucket[5m])))",
                "p99",
                "s",
            ),
            Panel(
                "Time from leases to running, median and 90th percentile",
                "histogram_quantile(0.5, sum by (le) (rate(leasehold_bind_seconds_bucket[15m])))"
                " or histogram_quantile(0.9,"
                " sum by (le) (rate(leasehold_bind_seconds_bucket[15m])))",
                "seconds",
                "s",
            ),
            Panel("Epoch and head of the ledger", "leasehold_ledger_head", "{{pod}}"),
            Panel("Changes of leader", "changes(leasehold_tenure_epoch[1h])", "{{pod}}"),
            Panel("Alerts per hour", "increase(leasehold_alerts_total[1h])", "{{pod}}"),
        ),
    ),
)


def expressions() -> list[str]:
    return [panel.expression for _, panels in ROWS for panel in panels]


def dashboard() -> Wire:
    panels: list[Wire] = []
    top = 0
    for title, row in ROWS:
        where = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": where})
        top += 1
        width = WIDTH // 3
        for index, panel in enumerate(row):
            at = {
                "x": index % 3 * width,
                "y": top + index // 3 * HEIGHT,
                "w": width,
                "h": HEIGHT,
            }
            panels.append(_panel(panel, len(panels) + 1, at))
        top += -(-len(row) // 3) * HEIGHT
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "title": "leasehold",
        "uid": "leasehold",
        "tags": ["leasehold"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels,
    }


def _panel(panel: Panel, number: int, at: dict[str, int]) -> Wire:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "gridPos": at,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "expr": panel.expression,
                "legendFormat": panel.legend,
            }
        ],
    }
