"""The SDK, asyncio first: producers and consumers for this broker and for Apache RocketMQ.

What a program begins with is here; `clients.blocking` has the same for scripts, `clients.allocation` the rules by which
members share queues, `clients.hooks` what looks on, and `clients.telemetry` hooks for OpenTelemetry and Prometheus.
docs/sdk.md introduces them.
"""

from clients.admin import Admin
from clients.allocation import Allocation
from clients.client import Client, ClientStatistics
from clients.errors import (
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
from clients.group_member import ConsumeFrom, Sql92
from clients.handler_calls import HandlerTimeout, MessageHandler
from clients.hooks import Hooks, Several
from clients.producer import Producer, ProducerStatistics
from clients.pull_consumer import PullConsumer
from clients.push_consumer import ConsumerStatistics, PushConsumer
from clients.send_back import LATER, Later
from clients.sends import SendResult, SendStatus
from clients.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
from clients.signing import Credentials
from clients.transactions import (
    LocalTransaction,
    TransactionChecker,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from protocol.bodies.message_queue import MessageQueue
from protocol.message import Message, MessageExt

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
