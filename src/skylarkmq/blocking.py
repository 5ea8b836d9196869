"""The SDK for scripts and threads; `skylarkmq.clients.blocking` describes it."""

from skylarkmq.clients.blocking import (
    Admin,
    ConnectionOptions,
    Producer,
    ProducerOptions,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    PushConsumerOptions,
    TransactionProducer,
)

__all__ = [
    "Admin",
    "ConnectionOptions",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullConsumerOptions",
    "PushConsumer",
    "PushConsumerOptions",
    "TransactionProducer",
]
