"""The SDK for scripts and threads: the same classes with blocking calls.

    with skylarkmq.blocking.connect("127.0.0.1:9876") as mq, mq.producer("shop") as producer:
        producer.send(Message("Orders", b"one coffee"))

Arguments, results and errors are those of `skylarkmq`. Handlers, checkers and local transactions are plain functions,
and run in threads. Any thread may call. One event loop in a background thread serves all objects.

Objects made before a fork raise ClientClosed in the child; new objects work there. An interrupt (Ctrl-C) ends the
waiting call, and each object stops in order at the end of its `with` block.
"""

from skylarkmq.clients.sdk.blocking import (
    Admin,
    MessageQueueClient,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    connect,
)
from skylarkmq.clients.sdk.consuming.blocking_message import ReceivedMessage

__all__ = [
    "Admin",
    "MessageQueueClient",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ReceivedMessage",
    "TransactionProducer",
    "connect",
]
