"""Generates docs/metrics.md from the catalogue.

    python -m tests.harness.metrics_document > docs/metrics.md

TEXT has the part about all metrics; the tables come from the catalogue. A test compares the file with the output.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from skylarkmq.broker.ops.catalogue import (
    CONNECTIONS,
    EXPORTER,
    LAGS,
    LIBRARY,
    NATIVE,
    OURS,
    PROCESS,
    REMOTING,
    REQUESTS,
    STATS,
    STORAGE,
    TRANSACTIONS,
    Row,
    Scope,
    Switch,
)
from skylarkmq.broker.ops.scrape import OVERFLOW

TEXT: Final = f"""# Metrics

The broker serves metrics at `http://<host>:5557/metrics`, next to `/healthz` and `/readyz`, in Prometheus's text format
or in OpenMetrics, as the scraper requests, and compressed if the scraper accepts gzip. The page is on by default and is
bound to the broker's listening address.

| Setting | Default | |
|---|---|---|
| metricsExporterType | PROM | DISABLE turns the page off; OTLP_GRPC and LOG are accepted and act like PROM |
| metricsPromExporterPort, metricsPromExporterHost | 5557, the broker's address | port 0 turns all pages off |
| metricsLabel | | labels added to all native metrics and to ours: `zone:a,rack:7` |
| metricsOtelCardinalityLimit | 50000 | maximum number of series per metric |
| enable…Metrics | true | turn off the metrics that name the setting in the tables below |

Scrape configuration, alert rules and a dashboard: [deploy/prometheus](../deploy/prometheus),
[deploy/grafana](../deploy/grafana).

## Rules

- Names, units and labels of `rocketmq_` metrics are those of RocketMQ 5 and of its exporter, on which Grafana's
  dashboard 10477 is built. Metrics of features that this version does not have are left out. `skylark_` metrics are
  ours.
- Metrics that the exporter queries from each client (`rocketmq_client_…`) are left out.
- Label values come from configuration and from tables, never from a client: no address, no client id, no message id.
- Counters start at 0 with the process. A series exists as long as its topic or group; deleting a topic deletes its
  series at once.
- If a metric has more than metricsOtelCardinalityLimit series, the first ones keep their labels. All others are
  aggregated into one overflow series with `{OVERFLOW}` as the value of each of its own labels: their sum, or their
  maximum where a sum has no meaning (ages). `skylark_scrape_folded_total` counts them.
- Rates of topics and groups cover the last minute, and are computed from earlier scrapes. The first scrape shows the
  rate since the start. If scrapes are more than a minute apart, the rates cover the time between them.
- Request latencies run from the read that received the request until the response is passed to the connection. A pull
  with `is_long_polling="true"` waited for messages (long polling).
- A scrape runs in slices of 0.5 ms, and yields to all other work in between. `skylark_scrape_hold_seconds` is the
  longest time that it blocked the event loop. A metric that cannot be collected is left out and counted; the others are
  exported.

Labels with the same value in all series of a broker, by the column *Scope* of the tables:

| Scope | Labels |
|---|---|
"""


def document() -> str:
    """Return the whole document."""
    return "\n".join((TEXT + "\n".join(scopes()), *sections(), library()))


def scopes() -> Iterator[str]:
    """Yield a table row for each scope."""
    for scope in Scope:
        more = ", metricsLabel" if scope in NATIVE else ""
        yield f"| {scope.name.lower()} | {', '.join(f'`{name}`' for name in scope.labels)}{more} |"


def sections() -> Iterator[str]:
    """Yield the tables with their headings."""
    for title, rows in (
        ("Requests and messages", (*REQUESTS, *REMOTING)),
        ("Consumers", LAGS),
        ("Clients", CONNECTIONS),
        ("Store", STORAGE),
        ("Transactions", TRANSACTIONS),
        ("Broker", STATS),
        ("Metrics of RocketMQ's exporter", EXPORTER),
        ("Skylark's own metrics", OURS),
        ("Process", PROCESS),
    ):
        yield f"\n## {title}\n"
        yield table(rows)


def table(rows: Iterable[Row]) -> str:
    """Return rows of the catalogue as a table."""
    lines = ["| Name | Kind | Labels | Scope | Measures |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{name}`" for name in row.labels)
        switch = "" if row.switch is Switch.ALWAYS else f" ({row.switch.value})"
        lines.append(f"| `{row.name}` | {row.kind.value} | {labels} | {row.scope.name.lower()} | {row.help}{switch} |")
    return "\n".join(lines)


def library() -> str:
    """Return the section about the metrics of prometheus_client."""
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in LIBRARY.items())
    return f"\n## Python interpreter\n\n| Names | Measure |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    print(document(), end="")
