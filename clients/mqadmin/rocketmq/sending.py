"""Commands that send messages: sendMessage, checkMsgSendRT."""

from typing import Annotated, Final

import typer

from skylarkmq.clients.mqadmin.commands import Commands
from skylarkmq.clients.mqadmin.failures import Failures, not_found, usage_error
from skylarkmq.clients.mqadmin.java_output import printf
from skylarkmq.clients.mqadmin.options import BodySize, is_true
from skylarkmq.clients.mqadmin.rocketmq.message_text import status_text
from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.clocks import now_ms
from skylarkmq.clients.sdk.base.errors import ClientError
from skylarkmq.clients.sdk.producing.producer import Producer
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message

COMMANDS = Commands()

_ROW: Final = "%-32s  %-4s  %-20s    %s%n"

Topic = Annotated[str, typer.Option("-t", "--topic", help="Name of the topic.")]


@COMMANDS.add("sendMessage", "Send a message.")
async def send_message(
    admin: Admin,
    topic: Topic,
    body: Annotated[str, typer.Option("-p", "--body", help="Text of the body; it is sent as UTF-8.")],
    keys: Annotated[str, typer.Option("-k", "--key", help="Keys, separated by spaces.")] = "",
    tags: Annotated[str, typer.Option("-c", "--tags", help="Tag of the message.")] = "",
    broker: Annotated[str | None, typer.Option("-b", "--broker", help="Name of the broker (with -i).")] = None,
    queue_id: Annotated[int, typer.Option("-i", "--qid", help="Number of the queue (with -b).")] = -1,
    trace: Annotated[str, typer.Option("-m", "--msgTraceEnable", help="true: send a message trace.")] = "false",
) -> None:
    """Send one message, and print where it is stored."""
    topic = topic.strip()
    if queue_id >= 0 and broker is None:
        raise usage_error("Broker name must be set if the queue is chosen!")
    queue = None if broker is None or queue_id < 0 else MessageQueue(topic, broker.strip(), queue_id)
    message = Message(topic, body.strip().encode(), tags=tags.strip(), keys=keys.strip())
    async with Producer(str(now_ms()), client=admin.client, trace=is_true(trace)) as producer:
        result = await producer.send(message, queue=queue)
    printf(_ROW, "#Broker Name", "#QID", "#Send Result", "#MsgId")
    where = result.queue
    printf(_ROW, where.broker_name, where.queue_id, status_text(result.status), result.msg_id)


@COMMANDS.add("checkMsgSendRT", "Check message send response time.")
async def check_send_times(
    admin: Admin,
    topic: Topic,
    amount: Annotated[int, typer.Option("-a", "--amount", min=1, help="Number of messages.")] = 100,
    size: BodySize = 128,
) -> None:
    """Send messages one by one to all queues, and print the time of each in ms. The average leaves out the first."""
    topic = topic.strip()
    message = Message(topic, b"a" * size)
    failures = Failures()
    total_ms = 0
    async with Producer(str(now_ms()), client=admin.client) as producer:
        queues = (await admin.client.routes.reload(topic)).publish_queues
        if not queues:
            raise not_found(f"topic {topic} has no writable queue. Check its permissions (topicRoute).")
        printf(_ROW, "#Broker Name", "#QID", "#Send Result", "#RT")
        for number in range(amount):
            queue = queues[number % len(queues)]
            begun_ms = now_ms()
            try:
                await producer.send(message, queue=queue)
                has_sent = True
            except ClientError as error:
                failures.add(error)
                has_sent = False
            elapsed_ms = now_ms() - begun_ms
            total_ms += elapsed_ms if number else 0
            printf(_ROW, queue.broker_name, queue.queue_id, has_sent, elapsed_ms)
    printf("Avg RT: %s%n", "NaN" if amount == 1 else f"{total_ms / (amount - 1):.2f}")
    failures.raise_if_any()
