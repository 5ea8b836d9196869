"""Write docs/reference/metrics.md from the metrics catalog.

    python -m tests.harness.metrics_document > docs/reference/metrics.md

TEXT is the part about all metrics; the tables come from the catalog. A test compares the file with this output.
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

`http://<host>:5557/metrics` serves the metrics, next to `/healthz` and `/readyz`. The format is Prometheus's text
format or OpenMetrics, as requested, compressed if the scraper accepts gzip. The page is on by default and binds to the
broker's address.

`mqnamesrv` serves the same page if `metricsPromExporterPort` is set. It has the metrics of requests, connections,
checks, quotas, refused registrations, open listeners, files with secrets, the audit log and the process. `node_type` is
`name_server`, `node_id` its host name and port; `cluster` is empty.

| Setting | Default | |
|---|---|---|
| metricsExporterType | PROM | DISABLE removes the page; OTLP_GRPC and LOG are accepted and have the effect of PROM |
| metricsAuth | – | the page needs an [account](behaviour.md#accounts); \
default: true if accounts exist, except on loopback |
| metricsTls | false | the pages use TLS, with the certificate of the broker's ports |
| metricsPromExporterPort, metricsPromExporterHost | 5557, as the broker | \
0: no health pages and no metrics; not set: the first free port from 5557 on |
| metricsLabel | | labels for all native and `skylark_` metrics: `zone:a,rack:7` |
| metricsOtelCardinalityLimit | 50000 | maximum number of series per metric |
| enable…Metrics | true | false disables the metrics that the tables mark with the setting |

Scrape configuration, alert rules and a dashboard: [deploy/prometheus](../../deploy/prometheus),
[deploy/grafana](../../deploy/grafana).

## Rules

- `rocketmq_` metrics have the names, units and labels of RocketMQ 5 and of its exporter, which Grafana's dashboard
  10477 uses. Metrics of features that this version does not have are omitted. `skylark_` metrics are specific to this
  broker.
- Metrics that RocketMQ's exporter requests from each client (`rocketmq_client_…`) are omitted.
- Label values come from configuration and from tables, never from a client: no address, no client id, no message id.
- Counters start at 0 with the process. A series exists while its topic or group exists; deleting a topic removes its
  series at once.
- A metric has at most metricsOtelCardinalityLimit series. All further ones are aggregated into one overflow series,
  with `{OVERFLOW}` as the value of each of its own labels. Its value is their sum, or the largest one where a sum has
  no meaning (ages). `skylark_scrape_folded_total` counts the aggregated series.
- Rates of topics and groups cover the last minute, computed from earlier scrapes. The first scrape returns the rate
  since the start. If scrapes are more than a minute apart, a rate covers the time between them.
- Latencies of requests run from the read that brought the request to the response that is passed to the connection.
  `is_long_polling="true"` marks pulls that waited for messages.
- A scrape runs in slices of 0.5 ms, with other work in between. `skylark_scrape_hold_seconds` is the longest time that
  it blocked the event loop. A metric that cannot be collected is omitted and counted; the others are returned.

These labels have the same value in all series of a broker, by the column *scope* of the tables:

| Scope | Labels |
|---|---|
"""


def document() -> str:
    """Return the text of the file."""
    return "\n".join((TEXT + "\n".join(scopes()), *sections(), library()))


def scopes() -> Iterator[str]:
    """Return one row for each scope."""
    for scope in Scope:
        more = ", metricsLabel" if scope in NATIVE else ""
        yield f"| {scope.name.lower()} | {', '.join(f'`{name}`' for name in scope.labels)}{more} |"


def sections() -> Iterator[str]:
    """Return the sections with tables."""
    for title, rows in (
        ("Requests and messages", (*REQUESTS, *REMOTING)),
        ("Consumers", LAGS),
        ("Clients", CONNECTIONS),
        ("Store", STORAGE),
        ("Transactions", TRANSACTIONS),
        ("Broker", STATS),
        ("RocketMQ exporter", EXPORTER),
        ("Skylark", OURS),
        ("Process", PROCESS),
    ):
        yield f"\n## {title}\n"
        yield table(rows)


def table(rows: Iterable[Row]) -> str:
    """Return a table of catalog rows."""
    lines = ["| Name | Kind | Labels | Scope | Measures |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{name}`" for name in row.labels)
        switch = "" if row.switch is Switch.ALWAYS else f" ({row.switch.value})"
        lines.append(f"| `{row.name}` | {row.kind.value} | {labels} | {row.scope.name.lower()} | {row.help}{switch} |")
    return "\n".join(lines)


def library() -> str:
    """Return the section about the metrics that prometheus_client adds."""
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in LIBRARY.items())
    return f"\n## Python interpreter\n\n| Names | Measure |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    print(document(), end="")
