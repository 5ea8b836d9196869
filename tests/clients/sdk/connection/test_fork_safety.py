"""Forks: errors in the child name the remedy, and the parent loses nothing. Each test forks a new process."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from skylarkmq.broker.app.in_process import InProcessBroker, running
from tests.harness.limits import PROCESS_LIMIT_S


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessBroker]:
    with running(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def output_of(script: str, broker: InProcessBroker) -> list[str]:
    """Return the lines that parent and child of a script print."""
    command = [sys.executable, "-c", script, broker.namesrv]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PROCESS_LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.splitlines()


BLOCKING = """
import os, sys, time
from skylarkmq import ClientClosed, ConsumeFrom, Message, blocking

def refused(call):
    begun_s = time.monotonic()
    try:
        call()
    except ClientClosed as error:
        took_s = time.monotonic() - begun_s
        print("refused", took_s < 1, "Make a new one in the child" in str(error), flush=True)

options = {"namesrv": sys.argv[1]}
with blocking.Producer("p", **options) as producer, blocking.PullConsumer("g", **options) as consumer:
    first = producer.send(Message("Forks", b"0"), message_group="one")
    consumer.assign([first.queue])
    child = os.fork()
    if not child:
        refused(lambda: producer.send(Message("Forks", b"1"), timeout_s=5))
        refused(lambda: producer.send_nowait(Message("Forks", b"1")).result(5))
        refused(lambda: consumer.poll(1, timeout_s=0.1))
        refused(lambda: consumer.seek_to_begin(first.queue))
        refused(producer.start)
        producer.stop()
        consumer.stop()
        with blocking.Producer("p", **options) as own:
            print("child", own.send(Message("Forks", b"2"), message_group="one").queue_offset, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("parent", producer.send(Message("Forks", b"3"), message_group="one").queue_offset, flush=True)
    (connection,) = producer.participant.client.statistics().brokers
    print("requests on the first connection", connection.requests >= 3, flush=True)
"""


@pytest.mark.daemon
def test_blocking_objects_of_the_parent_are_refused_in_the_child(broker: InProcessBroker) -> None:
    """The error names the remedy. New objects work, `stop` does nothing, and the parent keeps its connection."""
    assert output_of(BLOCKING, broker) == [
        *["refused True True"] * 5,
        "child 1",
        "parent 2",
        "requests on the first connection True",
    ]


ASYNC = """
import asyncio, os, sys
from skylarkmq import ClientClosed, Message, Producer, PullConsumer, PushConsumer

async def in_child(*calls):
    for call in calls:
        try:
            await asyncio.wait_for(call(), 5)
        except ClientClosed as error:
            print("refused", "Make a new one in the child" in str(error), flush=True)

async def handle(message):
    pass

async def main():
    namesrv = sys.argv[1]
    async with (
        Producer("p", namesrv=namesrv) as producer,
        PullConsumer("g", namesrv=namesrv) as pull,
        PushConsumer("h", namesrv=namesrv, handler=handle) as push,
    ):
        sent = await producer.send(Message("AsyncForks", b"0"))
        await pull.subscribe("AsyncForks")
        await push.subscribe("AsyncForks")
        child = os.fork()
        if not child:
            asyncio.run(in_child(
                lambda: producer.send(Message("AsyncForks", b"1")),
                lambda: producer.send_oneway(Message("AsyncForks", b"1")),
                lambda: producer.publish_queues("AsyncForks"),
                lambda: pull.poll(),
                lambda: push.subscribe("Other"),
                lambda: push.client.request("127.0.0.1:1", 28),
            ))
            asyncio.run(producer.stop())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        await asyncio.gather(*(producer.send(Message("AsyncForks", b"2"), queue=sent.queue) for _ in range(100)))
        (connection,) = producer.client.statistics().brokers
        print("sent", connection.requests >= 101, flush=True)

asyncio.run(main())
"""


@pytest.mark.daemon
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_async_objects_of_the_parent_are_refused_in_the_child(broker: InProcessBroker, loop: str) -> None:
    """On a new loop of the child, for both kinds of loops. The parent continues with the same connection."""
    script = ASYNC if loop == "asyncio" else ASYNC.replace("asyncio.run(main())", "__import__('uvloop').run(main())")
    assert output_of(script, broker) == [*["refused True"] * 6, "sent True"]


CLOSED_BY_PARENT = """
import asyncio, os, sys
from skylarkmq import Message, Producer

async def main():
    async with Producer("p", namesrv=sys.argv[1]) as producer:
        await producer.send(Message("Closes", b"0"))
        local = producer.client.brokers.current(producer.client.brokers.addresses()[0])
        port = local._transport.get_extra_info("sockname")[1]
        reading, writing = os.pipe()
        forked, runs = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.write(runs, b"x")  # the hooks that run in the child have closed its copies
            os.read(reading, 1)  # returns when the parent closes its end
            os._exit(0)
        os.close(reading)
        os.read(forked, 1)
    rows = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
    states = [row[3] for row in rows if row[1].endswith(f":{port:04X}")]
    print("established", "01" in states, flush=True)
    os.close(writing)
    os.waitpid(child, 0)

asyncio.run(main())
"""


@pytest.mark.daemon
def test_the_parents_close_reaches_the_broker_while_the_child_lives(broker: InProcessBroker) -> None:
    """The child holds no copy of the parent's sockets."""
    assert output_of(CLOSED_BY_PARENT, broker) == ["established False"]
