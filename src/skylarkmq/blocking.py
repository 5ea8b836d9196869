"""The SDK for scripts and threads; see `skylarkmq.clients.sdk.blocking`."""

from skylarkmq.clients.sdk.blocking import (
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
