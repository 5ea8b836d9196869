"""The SDK, asyncio first: producers and consumers for this broker and for Apache RocketMQ.

What a program begins with is here; `clients.blocking` has the same for scripts, `clients.allocation` the rules by which
members share queues, `clients.hooks` what looks on, and `clients.telemetry` hooks for OpenTelemetry and Prometheus.
docs/sdk.md introduces them.
"""

from skylarkmq.clients.admin import Admin
from skylarkmq.clients.allocation import Allocation
from skylarkmq.clients.client import Client, ClientStatistics
from skylarkmq.clients.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidAnswer,
    InvalidMessage,
    NoRoute,
    RequestTimeout,
)
from skylarkmq.clients.group_member import ConsumeFrom, Sql92
from skylarkmq.clients.handler_calls import HandlerTimeout, MessageHandler
from skylarkmq.clients.hooks import Hooks, Several
from skylarkmq.clients.producer import Producer, ProducerStatistics
from skylarkmq.clients.pull_consumer import PullConsumer
from skylarkmq.clients.push_consumer import ConsumerStatistics, PushConsumer
from skylarkmq.clients.send_back import LATER, Later
from skylarkmq.clients.sends import SendResult, SendStatus
from skylarkmq.clients.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
from skylarkmq.clients.signing import Credentials
from skylarkmq.clients.transactions import (
    LocalTransaction,
    TransactionChecker,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message, MessageExt

__all__ = [
    "LATER",
    "Admin",
    "Allocation",
    "BrokerError",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ClientStatistics",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerSettings",
    "ConsumerStatistics",
    "Credentials",
    "HandlerTimeout",
    "Hooks",
    "InvalidAnswer",
    "InvalidMessage",
    "Later",
    "LocalTransaction",
    "Message",
    "MessageExt",
    "MessageHandler",
    "MessageQueue",
    "NoRoute",
    "Producer",
    "ProducerSettings",
    "ProducerStatistics",
    "PullConsumer",
    "PushConsumer",
    "RequestTimeout",
    "SendResult",
    "SendStatus",
    "Several",
    "Sql92",
    "TlsSettings",
    "TransactionChecker",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]
