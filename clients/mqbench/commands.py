"""What the shell sees of mqbench: arguments in; tables, or one JSON object, on stdout; progress on stderr.

Exit codes: 0 measured, 1 measured, but some requests were refused, 2 not done: a wrong argument, no broker, no topic.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console

from clients.errors import ClientError
from clients.mqbench.clusters import Broker, bounds_of, find_brokers, make_topics
from clients.mqbench.compare import interleaved, ratios
from clients.mqbench.plot import NoPlot, save_plot
from clients.mqbench.pull_load import Ending
from clients.mqbench.recorder import Figures
from clients.mqbench.runs import ProcessFailed, consume, fill, one_in_flight, produce
from clients.mqbench.shown import compared_json, figures_table, progress, ratio_table
from clients.mqbench.workloads import PRESETS, Workload

REFUSED: Final = 1
NOT_DONE: Final = 2
STANDARD: Final = Workload()

mqbench = typer.Typer(
    help="Load a broker over the wire, this one or Apache RocketMQ, and measure how fast it answers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Target = Annotated[str | None, typer.Argument(metavar="[HOST:PORT]", help="A broker; or give -n.")]
Namesrv = Annotated[str | None, typer.Option("-n", "--namesrv", metavar="ADDR;ADDR", help="Name servers instead.")]
Size = Annotated[int, typer.Option("-s", "--size", min=0, help="Bytes of a body.")]
Topics = Annotated[int, typer.Option(min=1, help="Topics; they are created.")]
Queues = Annotated[int, typer.Option(min=1, help="Queues of each topic.")]
Topic = Annotated[str, typer.Option(help="How the topics' names begin.")]
Batch = Annotated[int, typer.Option(min=1, help="Messages of one request.")]
Connections = Annotated[int, typer.Option("-c", "--connections", min=1)]
InFlight = Annotated[int, typer.Option("-f", "--in-flight", min=1, help="Requests on each connection.")]
Rate = Annotated[float | None, typer.Option("-r", "--rate", min=0.1, help="Messages per second; else all it takes.")]
Seconds = Annotated[float, typer.Option("-t", "--seconds", min=0.01)]
Warmup = Annotated[float, typer.Option(min=0, help="Seconds before that which do not count.")]
Processes = Annotated[int, typer.Option(min=1, help="Processes that share the connections.")]
Backlog = Annotated[int, typer.Option("-m", "--messages", min=1, help="Messages of the backlog.")]
Pull = Annotated[int, typer.Option(min=1, help="Messages of one pull.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Latency over time, as .svg or .png.")]

PRODUCE_HELP: Final = """
Send messages, many in flight, and measure sends per second and their latency.

With --rate each message has a time at which it is due, and its latency counts from there, also when the broker was too
slow to let it leave on time. Without it latencies are those of an overloaded broker: compare them at a fixed rate.

Examples:\n
  mqbench produce 127.0.0.1:10911\n
  mqbench produce -n 127.0.0.1:9876 --rate 10000 --seconds 60 --plot latency.svg\n
  mqbench produce 127.0.0.1:10911 --batch 100 --in-flight 8 --json | jq .mb_per_s\n
"""

CONSUME_HELP: Final = """
Read the topics that `produce` filled: to their ends, again and again (--again), or what comes from now on (--follow).

No group is joined, and no offset is committed. With --follow the ages of messages are shown, from birth to arrival.

Examples:\n
  mqbench consume 127.0.0.1:10911\n
  mqbench consume 127.0.0.1:10911 --connections 1 --again --seconds 30\n
  mqbench consume -n 127.0.0.1:9876 --follow --seconds 60\n
"""

LATENCY_HELP: Final = """
Send one message at a time, on one connection, and measure what each waits for its answer.

Examples:\n
  mqbench latency 127.0.0.1:10911\n
  mqbench latency 127.0.0.1:10911 --seconds 30 --json | jq '.latency_us["p99.9"]'\n
"""

BACKLOG_HELP: Final = """
Send a number of messages that nobody reads, then read them all, and measure both.

Examples:\n
  mqbench backlog 127.0.0.1:10911\n
  mqbench backlog 127.0.0.1:10911 --messages 10000000 --queues 16\n
"""

COMPARE_HELP: Final = """
Load two brokers in turns, in short rounds, and show the second's figures by the first's: min / median / max.

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
def produce_command(
    target: Target = None,
    namesrv: Namesrv = None,
    size: Size = STANDARD.size,
    topics: Topics = STANDARD.topics,
    queues: Queues = STANDARD.queues,
    topic: Topic = STANDARD.topic,
    batch: Batch = STANDARD.batch,
    connections: Connections = STANDARD.connections,
    in_flight: InFlight = STANDARD.in_flight,
    rate: Rate = None,
    seconds: Seconds = STANDARD.seconds,
    warmup: Warmup = STANDARD.warmup_s,
    processes: Processes = STANDARD.processes,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Figures to stdout."""
    workload = Workload(
        topics=topics,
        queues=queues,
        size=size,
        batch=batch,
        connections=connections,
        in_flight=in_flight,
        rate=rate,
        seconds=seconds,
        warmup_s=warmup,
        processes=processes,
        topic=topic,
    )
    with one_line_on_stderr("produce"):
        brokers = ready_brokers(target, namesrv, workload)
        with progress("produce") as watch:
            figures = produce(workload, brokers, watch)
        tell("produce", workload, {"produce": figures}, as_json=as_json, plot=plot)


@mqbench.command("consume", help=CONSUME_HELP, short_help="Read queues.")
def consume_command(
    target: Target = None,
    namesrv: Namesrv = None,
    topics: Topics = STANDARD.topics,
    queues: Queues = STANDARD.queues,
    topic: Topic = STANDARD.topic,
    connections: Connections = STANDARD.connections,
    pull: Pull = STANDARD.pull,
    again: Annotated[bool, typer.Option("--again", help="At its end a queue begins anew.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Read what comes from now on.")] = False,
    seconds: Seconds = STANDARD.seconds,
    warmup: Warmup = STANDARD.warmup_s,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Figures to stdout."""
    if again and follow:
        raise typer.BadParameter("give --again or --follow, not both")
    workload = Workload(
        topics=topics,
        queues=queues,
        connections=connections,
        pull=pull,
        seconds=seconds,
        warmup_s=warmup,
        topic=topic,
    )
    ending = Ending.AGAIN if again else Ending.FOLLOW if follow else Ending.STOP
    with one_line_on_stderr("consume"):
        bounds = bounds_of(find_brokers(target, namesrv), workload)
        with progress("consume") as watch:
            figures = consume(workload, bounds, ending, watch)
        tell("consume", workload, {"consume": figures}, as_json=as_json, plot=plot)


@mqbench.command("latency", help=LATENCY_HELP, short_help="One send in flight.")
def latency_command(
    target: Target = None,
    namesrv: Namesrv = None,
    size: Size = STANDARD.size,
    queues: Queues = STANDARD.queues,
    topic: Topic = STANDARD.topic,
    seconds: Seconds = STANDARD.seconds,
    warmup: Warmup = STANDARD.warmup_s,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Figures to stdout."""
    workload = Workload(
        queues=queues, size=size, connections=1, in_flight=1, seconds=seconds, warmup_s=warmup, topic=topic
    )
    with one_line_on_stderr("latency"):
        (broker, *_) = ready_brokers(target, namesrv, workload)
        with progress("latency") as watch:
            figures = one_in_flight(workload, broker, watch)
        tell("latency", workload, {"latency": figures}, as_json=as_json, plot=plot)


@mqbench.command("backlog", help=BACKLOG_HELP, short_help="Fill queues, then read them.")
def backlog_command(
    target: Target = None,
    namesrv: Namesrv = None,
    messages: Backlog = STANDARD.backlog,
    size: Size = STANDARD.size,
    topics: Topics = STANDARD.topics,
    queues: Queues = STANDARD.queues,
    topic: Topic = STANDARD.topic,
    connections: Connections = STANDARD.connections,
    in_flight: InFlight = STANDARD.in_flight,
    pull: Pull = STANDARD.pull,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Figures to stdout."""
    workload = Workload(
        topics=topics,
        queues=queues,
        size=size,
        connections=connections,
        in_flight=in_flight,
        backlog=messages,
        pull=pull,
        topic=topic,
    )
    with one_line_on_stderr("backlog"):
        run_backlog(workload, ready_brokers(target, namesrv, workload), as_json=as_json, plot=plot)


@mqbench.command("compare", help=COMPARE_HELP, short_help="Two brokers in turns.")
def compare_command(
    first: Annotated[str, typer.Argument(metavar="HOST:PORT", help="What the other is compared with.")],
    second: Annotated[str, typer.Argument(metavar="HOST:PORT")],
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    size: Size = STANDARD.size,
    topics: Topics = STANDARD.topics,
    queues: Queues = STANDARD.queues,
    topic: Topic = STANDARD.topic,
    batch: Batch = STANDARD.batch,
    connections: Connections = STANDARD.connections,
    in_flight: InFlight = STANDARD.in_flight,
    rate: Rate = None,
    seconds: Annotated[float, typer.Option("-t", "--seconds", min=0.01, help="Of each round.")] = 3.0,
    warmup: Annotated[float, typer.Option(min=0, help="Seconds of each round that do not count.")] = 0.5,
    as_json: AsJson = False,
) -> None:
    """Ratios to stdout."""
    workload = Workload(
        topics=topics,
        queues=queues,
        size=size,
        batch=batch,
        connections=connections,
        in_flight=in_flight,
        rate=rate,
        seconds=seconds,
        warmup_s=warmup,
        topic=topic,
    )
    with one_line_on_stderr("compare"):
        sides = [ready_brokers(target, None, workload) for target in (first, second)]
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
def run_command(
    name: Annotated[str, typer.Argument(metavar="WORKLOAD")],
    target: Target = None,
    namesrv: Namesrv = None,
    seconds: Annotated[float | None, typer.Option("-t", "--seconds", min=0.01)] = None,
    messages: Annotated[int | None, typer.Option("-m", "--messages", min=1, help="Of a backlog.")] = None,
    rate: Rate = None,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Figures to stdout."""
    preset = PRESETS.get(name)
    if preset is None:
        raise typer.BadParameter(f"{name} is none of {', '.join(PRESETS)}")
    given = {"seconds": seconds, "backlog": messages, "rate": rate}
    changes = {field: value for field, value in given.items() if value is not None}
    workload = msgspec.structs.replace(preset.workload, **changes)
    with one_line_on_stderr("run"):
        brokers = ready_brokers(target, namesrv, workload)
        if preset.command == "backlog":
            run_backlog(workload, brokers, as_json=as_json, plot=plot)
            return
        with progress(name) as watch:
            figures = produce(workload, brokers, watch)
        tell(name, workload, {preset.command: figures}, as_json=as_json, plot=plot)


def run_backlog(workload: Workload, brokers: list[Broker], *, as_json: bool, plot: Path | None) -> None:
    """Fill, then read from where the queues ended before."""
    before = bounds_of(brokers, workload)
    with progress("fill") as watch:
        filled = fill(workload, brokers, watch)
    after = bounds_of(brokers, workload)
    added = [msgspec.structs.replace(queue, first=old.end) for old, queue in zip(before, after, strict=True)]
    with progress("drain") as watch:
        drained = consume(workload, added, Ending.STOP, watch)
    tell("backlog", workload, {"fill": filled, "drain": drained}, as_json=as_json, plot=plot)


def ready_brokers(target: str | None, namesrv: str | None, workload: Workload) -> list[Broker]:
    """The brokers, with the workload's topics."""
    brokers = find_brokers(target, namesrv)
    make_topics(brokers, workload)
    return brokers


def tell(what: str, workload: Workload, parts: dict[str, Figures], *, as_json: bool, plot: Path | None) -> None:
    """Print the figures of each part; exit code 1 if anything was refused."""
    if as_json:
        figures = {name: part.to_json() for name, part in parts.items()}
        only = figures.popitem()[1] if len(figures) == 1 else figures
        typer.echo(msgspec.json.encode({"command": what, "workload": msgspec.to_builtins(workload)} | only))
    else:
        Console().print(figures_table(parts))
    if plot is not None:
        save_plot(plot, f"mqbench {what}", next(iter(parts.values())).timeline)
    refused = [part for part in parts.values() if part.refused]
    for part in refused:
        codes = ", ".join(f"{count} with code {code}" for code, count in sorted(part.refused.items()))
        typer.echo(f"refused: {codes} {part.remark}", err=True)
    if refused:
        raise typer.Exit(REFUSED)


@contextmanager
def one_line_on_stderr(command: str) -> Iterator[None]:
    """What is in the way: one line and exit code 2; what the SDK logs of it would be said twice."""
    logging.getLogger("clients").addHandler(logging.NullHandler())
    try:
        yield
    except (ClientError, NoPlot, OSError, ProcessFailed, ValueError) as error:
        typer.echo(f"mqbench {command}: {error}", err=True)
        raise typer.Exit(NOT_DONE) from None
