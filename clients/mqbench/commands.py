"""The command line of mqbench: tables, or one JSON object, on stdout; progress on stderr.

Exit codes: 0 measured; 1 measured, but some requests were rejected; 2 not run: a wrong argument, no broker, no topic.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from skylarkmq.clients.mqbench.clusters import Broker, Security, added_since, bounds_of, create_topics
from skylarkmq.clients.mqbench.compare import interleaved, ratios
from skylarkmq.clients.mqbench.display import compared_json, figures_table, progress, ratio_table
from skylarkmq.clients.mqbench.options import AsJson, Cluster, Output, Rate, options
from skylarkmq.clients.mqbench.plot import NoPlot, save_plot
from skylarkmq.clients.mqbench.pull_load import Ending
from skylarkmq.clients.mqbench.recorder import Figures
from skylarkmq.clients.mqbench.runs import ProcessFailed, consume, fill, produce, send_one_at_a_time
from skylarkmq.clients.mqbench.workloads import PRESETS, Workload
from skylarkmq.clients.sdk.base.errors import ClientError

REFUSED: Final = 1
NOT_DONE: Final = 2

mqbench = typer.Typer(
    help="Load a broker over the network, this one or Apache RocketMQ, and measure its throughput and latency.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PRODUCE_HELP: Final = """
Send messages, many in flight, and measure sends per second and their latency.

With --rate, each message has a due time. Its latency counts from this time, even if the broker was too slow for the
message to leave on time. Without --rate, latencies show an overloaded broker: compare latencies at a fixed rate.

Examples:\n
  mqbench produce 127.0.0.1:10911\n
  mqbench produce -n 127.0.0.1:9876 --rate 10000 --seconds 60 --plot latency.svg\n
  mqbench produce 127.0.0.1:10911 --batch 100 --in-flight 8 --json | jq .mb_per_s\n
  mqbench produce 10.0.0.5:10911 --tls --ca authority.pem\n
  MQBENCH_ACCESS_KEY=loader MQBENCH_SECRET_KEY=... mqbench produce 10.0.0.5:10911\n
"""

CONSUME_HELP: Final = """
Read the topics that `produce` filled: to their ends, repeatedly (--again), or only new messages (--follow).

No group is joined, and no offset is committed. With --follow, the ages of messages are measured, from birth to arrival.

Examples:\n
  mqbench consume 127.0.0.1:10911\n
  mqbench consume 127.0.0.1:10911 --connections 1 --again --seconds 30\n
  mqbench consume -n 127.0.0.1:9876 --follow --seconds 60\n
"""

LATENCY_HELP: Final = """
Send one message at a time, on one connection, and measure the time until its response.

Examples:\n
  mqbench latency 127.0.0.1:10911\n
  mqbench latency 127.0.0.1:10911 --seconds 30 --json | jq '.latency_us["p99.9"]'\n
"""

BACKLOG_HELP: Final = """
Send a number of messages, then read them all, and measure both.

Examples:\n
  mqbench backlog 127.0.0.1:10911\n
  mqbench backlog 127.0.0.1:10911 --messages 10000000 --queues 16\n
"""

COMPARE_HELP: Final = """
Load two brokers alternately, in short rounds, and print the ratio of the second broker's figures to the first broker's:
min / median / max.

Examples:\n
  mqbench compare 127.0.0.1:10911 127.0.0.1:20911\n
  mqbench compare 10.0.0.5:10911 10.0.0.6:10911 --rate 20000 --rounds 9 --seconds 10\n
"""

RUN_HELP: Final = f"""
Run a workload by its name.

Workloads: {", ".join(PRESETS)}.

Examples:\n
  mqbench run 1-topic-16-queues-1kb 127.0.0.1:10911\n
  mqbench run backlog-1-topic-16-queues-1kb -n 127.0.0.1:9876 --json\n
"""


@mqbench.command("produce", help=PRODUCE_HELP, short_help="Many sends in flight.")
@options(
    "size",
    "topics",
    "queues",
    "topic",
    "batch",
    "connections",
    "in_flight",
    "rate",
    "seconds",
    "warmup_s",
    "processes",
)
def produce_command(workload: Workload, cluster: Cluster, output: Output) -> None:
    """Print figures to stdout."""
    with one_line_on_stderr("produce"):
        brokers = ready_brokers(cluster, workload)
        with progress("produce") as watch:
            figures = produce(workload, brokers, watch)
        print_figures("produce", workload, {"produce": figures}, output)


@mqbench.command("consume", help=CONSUME_HELP, short_help="Read queues.")
@options("topics", "queues", "topic", "connections", "pull", "seconds", "warmup_s")
def consume_command(
    workload: Workload,
    cluster: Cluster,
    output: Output,
    again: Annotated[bool, typer.Option("--again", help="Start again when a queue ends.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Read only new messages.")] = False,
) -> None:
    """Print figures to stdout."""
    if again and follow:
        raise typer.BadParameter("set --again or --follow, not both")
    ending = Ending.AGAIN if again else Ending.FOLLOW if follow else Ending.STOP
    with one_line_on_stderr("consume"):
        bounds = bounds_of(cluster.brokers(), workload)
        with progress("consume") as watch:
            figures = consume(workload, bounds, ending, watch)
        print_figures("consume", workload, {"consume": figures}, output)


@mqbench.command("latency", help=LATENCY_HELP, short_help="One send in flight.")
@options("size", "queues", "topic", "seconds", "warmup_s")
def latency_command(workload: Workload, cluster: Cluster, output: Output) -> None:
    """Print figures to stdout."""
    workload = msgspec.structs.replace(workload, connections=1, in_flight=1)
    with one_line_on_stderr("latency"):
        (broker, *_) = ready_brokers(cluster, workload)
        with progress("latency") as watch:
            figures = send_one_at_a_time(workload, broker, watch)
        print_figures("latency", workload, {"latency": figures}, output)


@mqbench.command("backlog", help=BACKLOG_HELP, short_help="Fill queues, then read them.")
@options("backlog", "size", "topics", "queues", "topic", "connections", "in_flight", "pull")
def backlog_command(workload: Workload, cluster: Cluster, output: Output) -> None:
    """Print figures to stdout."""
    with one_line_on_stderr("backlog"):
        run_backlog(workload, ready_brokers(cluster, workload), output)


@mqbench.command("compare", help=COMPARE_HELP, short_help="Two brokers alternately.")
@options("size", "topics", "queues", "topic", "batch", "connections", "in_flight", "rate", seconds=3.0, warmup_s=0.5)
def compare_command(
    first: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The broker that the second one is compared with.")],
    second: Annotated[str, typer.Argument(metavar="HOST:PORT")],
    workload: Workload,
    security: Security,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds, each of --seconds.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Print ratios to stdout."""
    with one_line_on_stderr("compare"):
        sides = [ready_brokers(Cluster(target, security=security), workload) for target in (first, second)]
        with progress("compare") as watch:
            one, two = interleaved(
                [lambda brokers=brokers: produce(workload, brokers, watch) for brokers in sides],  # type: ignore[misc]
                rounds,
            )
        found = ratios(one, two)
    if as_json:
        typer.echo(msgspec.json.encode(compared_json(workload, (first, second), found)))
    else:
        Console().print(ratio_table((first, second), found))
    if any(figures.refused for figures in (*one, *two)):
        raise typer.Exit(REFUSED)


@mqbench.command("run", help=RUN_HELP, short_help="A workload by its name.")
@options()
def run_command(
    name: Annotated[str, typer.Argument(metavar="WORKLOAD")],
    cluster: Cluster,
    output: Output,
    seconds: Annotated[float | None, typer.Option("-t", "--seconds", min=0.01)] = None,
    messages: Annotated[int | None, typer.Option("-m", "--messages", min=1, help="Messages of a backlog.")] = None,
    rate: Rate = None,
) -> None:
    """Print figures to stdout."""
    preset = PRESETS.get(name)
    if preset is None:
        raise typer.BadParameter(f"{name} is not one of {', '.join(PRESETS)}")
    given = {"seconds": seconds, "backlog": messages, "rate": rate}
    changes = {field: value for field, value in given.items() if value is not None}
    workload = msgspec.structs.replace(preset.workload, **changes)
    with one_line_on_stderr("run"):
        brokers = ready_brokers(cluster, workload)
        if preset.command == "backlog":
            run_backlog(workload, brokers, output)
            return
        with progress(name) as watch:
            figures = produce(workload, brokers, watch)
        print_figures(name, workload, {preset.command: figures}, output)


def run_backlog(workload: Workload, brokers: list[Broker], output: Output) -> None:
    """Fill the queues, then read the new messages."""
    before = bounds_of(brokers, workload)
    with progress("fill") as watch:
        filled = fill(workload, brokers, watch)
    added = added_since(before, workload, filled.messages)
    with progress("drain") as watch:
        drained = consume(workload, added, Ending.STOP, watch)
    print_figures("backlog", workload, {"fill": filled, "drain": drained}, output)


def ready_brokers(cluster: Cluster, workload: Workload) -> list[Broker]:
    """Return the brokers, after the workload's topics are created."""
    brokers = cluster.brokers()
    create_topics(brokers, workload)
    return brokers


def print_figures(what: str, workload: Workload, parts: dict[str, Figures], output: Output) -> None:
    """Print the figures of each part. Exit with code 1 if any request was rejected."""
    if output.as_json:
        figures = {name: part.to_json() for name, part in parts.items()}
        only = figures.popitem()[1] if len(figures) == 1 else figures
        typer.echo(msgspec.json.encode({"command": what, "workload": msgspec.to_builtins(workload)} | only))
    else:
        Console().print(figures_table(parts))
    if output.plot is not None:
        save_plot(output.plot, f"mqbench {what}", next(iter(parts.values())).timeline)
    refused = [part for part in parts.values() if part.refused]
    for part in refused:
        codes = ", ".join(f"{count} with code {code}" for code, count in sorted(part.refused.items()))
        typer.echo(f"refused: {codes} {part.remark}", err=True)
    if refused:
        raise typer.Exit(REFUSED)


@contextmanager
def one_line_on_stderr(command: str) -> Iterator[None]:
    """Print an error as one line and exit with code 2; the SDK's log about it is suppressed."""
    logging.getLogger("skylarkmq.clients").addHandler(logging.NullHandler())
    try:
        yield
    except (ClientError, NoPlot, OSError, ProcessFailed, ValueError) as error:
        typer.echo(f"mqbench {command}: {error}", err=True)
        raise typer.Exit(NOT_DONE) from None
