"""docs/metrics.md out of the catalogue.

    python -m tests.harness.metrics_document > docs/metrics.md

What is told about all metrics stands here, in TEXT; the tables are the catalogue's. A test holds the file to this.
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

`http://<host>:5557/metrics`, beside `/healthz` and `/readyz`, in Prometheus's text format or OpenMetrics, whichever is
asked for, compressed if the scraper takes gzip. It is on by default and bound like the broker.

| Setting | Default | |
|---|---|---|
| metricsExporterType | PROM | DISABLE takes the page away; OTLP_GRPC and LOG are known, and do the same as PROM |
| metricsPromExporterPort, metricsPromExporterHost | 5557, as the broker | 0: no pages at all |
| metricsLabel | | labels for all native metrics and ours: `zone:a,rack:7` |
| metricsOtelCardinalityLimit | 50000 | series of one metric |
| enable…Metrics | true | turn off what the tables name |

Scrape configuration, alert rules and a dashboard: [deploy/prometheus](../deploy/prometheus),
[deploy/grafana](../deploy/grafana).

## Rules

- Names, units and labels of `rocketmq_` metrics are RocketMQ 5's, and those of its exporter, on which Grafana's
  dashboard 10477 is built; features that this version does not have are not told. `skylark_` metrics are ours.
- What the exporter asks each client for (`rocketmq_client_…`) is not told.
- Labels come from configuration and from tables, never from a client: no address, no client id, no message id.
- Counters begin at 0 with the process. A series is there while its topic or group is; a topic that is deleted takes its
  series along at once.
- Beyond metricsOtelCardinalityLimit series of a metric, the first keep theirs, and all others are told as one with the
  value `{OVERFLOW}` in every label of their own: their sum, or the largest where a sum means nothing (ages). How
  often that happened is `skylark_scrape_folded_total`.
- Rates of topics and groups are over the last minute, from what earlier scrapes saw: the first scrape tells the rate
  since the start, and with scrapes further apart than a minute they are over that time.
- Latencies of requests run from the read that brought them to the answer handed to the connection. With
  `is_long_polling="true"` a pull waited for messages on purpose.
- A scrape works in slices of 0.5 ms and lets everything else go first; `skylark_scrape_hold_seconds` says for how long
  it held the event loop at most. A metric that cannot be collected is left out and counted, the others are told.

Labels that are the same in all series of a broker, by the tables' column *scope*:

| Scope | Labels |
|---|---|
"""


def document() -> str:
    """The whole file."""
    return "\n".join((TEXT + "\n".join(scopes()), *sections(), library()))


def scopes() -> Iterator[str]:
    """A row for each scope."""
    for scope in Scope:
        more = ", metricsLabel" if scope in NATIVE else ""
        yield f"| {scope.name.lower()} | {', '.join(f'`{name}`' for name in scope.labels)}{more} |"


def sections() -> Iterator[str]:
    """The tables."""
    for title, rows in (
        ("Requests and messages", (*REQUESTS, *REMOTING)),
        ("Consumers", LAGS),
        ("Clients", CONNECTIONS),
        ("Store", STORAGE),
        ("Transactions", TRANSACTIONS),
        ("Broker", STATS),
        ("The exporter's", EXPORTER),
        ("Ours", OURS),
        ("The process", PROCESS),
    ):
        yield f"\n## {title}\n"
        yield table(rows)


def table(rows: Iterable[Row]) -> str:
    """Rows of the catalogue."""
    lines = ["| Name | Kind | Labels | Scope | Measures |", "|---|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{name}`" for name in row.labels)
        switch = "" if row.switch is Switch.ALWAYS else f" ({row.switch.value})"
        lines.append(f"| `{row.name}` | {row.kind.value} | {labels} | {row.scope.name.lower()} | {row.help}{switch} |")
    return "\n".join(lines)


def library() -> str:
    """What prometheus_client adds."""
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in LIBRARY.items())
    return f"\n## The interpreter\n\n| Names | Measure |\n|---|---|\n{rows}\n"


if __name__ == "__main__":
    print(document(), end="")
