"""The C++ driver: RocketMQ's C++ client under its own Python wrapper. Command line and output: ../../drivers.py.

It runs in its own environment and imports nothing of this repository. The wrapper passes bodies as C strings, so they
contain no zero byte. It reads properties by name only, so PROPERTY_NAMES lists the names that the plan uses.
"""

import base64
import json
import os
import sys
import threading
from collections import Counter
from typing import Any

from rocketmq.client import (  # type: ignore[import-not-found]  # installed in its own environment only
    Message,
    MessageModel,
    Producer,
    PushConsumer,
    RecvMessage,
)
from rocketmq.exceptions import RocketMQException  # type: ignore[import-not-found]

SUCCESS, RECONSUME_LATER = 0, 1  # what a callback returns to the C++ client

PROPERTY_NAMES = ("n", "größe", "ort", "mood", "fails")
CHANNEL = "ALIYUN"  # signed with the other fields
_keys: list[str] = []  # access key and secret key; none: requests are not signed
_lock = threading.Lock()
_attempts: Counter[str] = Counter()


def produce(namesrv: str, topic: str, group: str) -> None:
    producer = Producer(group)
    producer.set_namesrv_addr(namesrv)
    if _keys:
        producer.set_session_credentials(*_keys, CHANNEL)
    producer.start()
    emit(event="started")
    in_flight = []
    for line in sys.stdin:
        order = json.loads(line)
        if order["mode"] == "oneway":
            producer.send_oneway(message(topic, order))
        elif order["mode"] == "async":
            in_flight.append(send_async(producer, topic, order))
        else:
            send_sync(producer, topic, order)
    for completed in in_flight:
        completed.wait()
    producer.shutdown()


def send_sync(producer: Any, topic: str, order: dict[str, Any]) -> None:
    try:
        sent(order, producer.send_sync(message(topic, order)))
    except RocketMQException as error:
        failed(order, error)


def send_async(producer: Any, topic: str, order: dict[str, Any]) -> threading.Event:
    completed = threading.Event()

    def succeed(result: Any) -> None:
        sent(order, result)
        completed.set()

    def fail(error: Exception) -> None:
        failed(order, error)
        completed.set()

    producer.send_async(message(topic, order), succeed, fail)
    return completed


def consume(namesrv: str, topic: str, group: str, command: str = "consume") -> None:
    model = MessageModel.BROADCASTING if command == "broadcast" else MessageModel.CLUSTERING
    consumer = PushConsumer(group, orderly=command == "orderly", message_model=model)
    consumer.set_namesrv_addr(namesrv)
    if _keys:
        consumer.set_session_credentials(*_keys, CHANNEL)
    # The wrapper's own callback cannot fail a message: ctypes discards its exceptions. So register one that can.
    register = consumer._register_callback
    consumer._register_callback = lambda _: register(lambda _, message: received(RecvMessage(message)))
    consumer.subscribe(topic, None)
    consumer.start()
    emit(event="started")
    sys.stdin.read()
    consumer.shutdown()


def message(topic: str, order: dict[str, Any]) -> Any:
    made = Message(topic)
    made.set_tags(order["tags"])
    made.set_keys(" ".join(order["keys"]))
    made.set_body(base64.b64decode(order["body"]))
    for name, value in order["properties"].items():
        made.set_property(name, value)
    if order["delay_level"]:
        made.set_delay_time_level(order["delay_level"])
    return made


def sent(order: dict[str, Any], result: Any) -> None:
    status = "SEND_OK" if result.status == 0 else str(result.status)
    emit(event="sent", n=order["n"], status=status, id=result.msg_id, queue=None, offset=result.offset)


def failed(order: dict[str, Any], error: Exception) -> None:
    emit(event="failed", n=order["n"], error=str(error))


def received(message: Any) -> int:
    properties = {name: (message.get_property(name) or b"").decode() for name in PROPERTY_NAMES}
    emit(
        event="received",
        topic=message.topic,
        queue=message.queue_id,
        offset=message.queue_offset,
        id=message.id,
        tags=message.tags.decode(),
        keys=message.keys.decode(),
        properties={name: value for name, value in properties.items() if value},
        body=base64.b64encode(message.body).decode(),
    )
    with _lock:
        _attempts[properties["n"]] += 1
        has_failed = _attempts[properties["n"]] <= int(properties["fails"] or 0)
    return RECONSUME_LATER if has_failed else SUCCESS


def emit(**event: Any) -> None:
    with _lock:
        print(json.dumps(event), flush=True)


if __name__ == "__main__":
    command, namesrv, topic, group, deadline, *_keys = sys.argv[1:]
    threading.Timer(float(deadline), os._exit, (3,)).start()
    if command == "produce":
        produce(namesrv, topic, group)
    else:
        consume(namesrv, topic, group, command)
    emit(event="left")
    os._exit(0)  # the wrapper's destructors would stop the client a second time
