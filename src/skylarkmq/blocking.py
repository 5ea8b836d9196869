"""The SDK for scripts and threads; see `skylarkmq.clients.blocking`."""

from skylarkmq.clients.blocking import (
    Admin,
    MessageQueueClient,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
    connect,
)

__all__ = [
    "Admin",
    "MessageQueueClient",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "TransactionProducer",
    "connect",
]
