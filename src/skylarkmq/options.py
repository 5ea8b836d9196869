"""The options of `connect` and of the SDK's classes, as types for programs that pass options on.

    from typing import Unpack
    from skylarkmq.options import ProducerOptions

    def shop_producer(mq: MessageQueueClient, **options: Unpack[ProducerOptions]) -> Producer:
        return mq.producer("shop", **options)

    ConnectOptions        `connect`
    ProducerOptions       `mq.producer`, `mq.transaction_producer`
    PushConsumerOptions   `mq.consumer`, besides its handler
    PullConsumerOptions   `mq.pull_consumer`
    Standalone...         the same classes, and `Admin`, if they are made without `connect`

`skylarkmq.blocking` takes the same options.
"""

from skylarkmq.clients.sdk.connection.options import ConnectOptions, StandaloneOptions
from skylarkmq.clients.sdk.consuming.options import (
    PullConsumerOptions,
    PushConsumerOptions,
    StandalonePullConsumerOptions,
    StandalonePushConsumerOptions,
)
from skylarkmq.clients.sdk.producing.options import ProducerOptions, StandaloneProducerOptions

__all__ = [
    "ConnectOptions",
    "ProducerOptions",
    "PullConsumerOptions",
    "PushConsumerOptions",
    "StandaloneOptions",
    "StandaloneProducerOptions",
    "StandalonePullConsumerOptions",
    "StandalonePushConsumerOptions",
]
