"""The SDK: asyncio producers and consumers for this broker and for Apache RocketMQ. Programs begin with `connect`.

    clients.sdk.options               the options of all classes; limits and times: clients.sdk.settings
    clients.sdk.blocking              the same classes with blocking calls, for scripts and threads
    clients.sdk.consuming.allocation  the rules by which the members of a group share queues
    clients.sdk.hooks                 observers; clients.sdk.telemetry has those for OpenTelemetry and Prometheus

docs/use/sdk.md introduces them.
"""

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.connection.client import Client, ClientStatistics
from skylarkmq.clients.sdk.connection.connection_events import ConnectionEvent
from skylarkmq.clients.sdk.connection.signing import Credentials
from skylarkmq.clients.sdk.consuming.allocation import Allocation
from skylarkmq.clients.sdk.consuming.consumer import ConsumerStatistics
from skylarkmq.clients.sdk.consuming.group_member import ConsumeFrom, Sql92, Topics
from skylarkmq.clients.sdk.consuming.handler_calls import HandlerTimeout, InvalidResult
from skylarkmq.clients.sdk.consuming.handlers import BlockingHandler, MessageHandler
from skylarkmq.clients.sdk.consuming.later import LATER, Later
from skylarkmq.clients.sdk.consuming.pull_consumer import PullConsumer
from skylarkmq.clients.sdk.consuming.push_consumer import PushConsumer
from skylarkmq.clients.sdk.consuming.rebalance_callbacks import QueuesCallback
from skylarkmq.clients.sdk.consuming.received_message import Deserializer, ReceivedMessage
from skylarkmq.clients.sdk.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidArgument,
    InvalidBody,
    InvalidMessage,
    InvalidResponse,
    NoRoute,
    RequestTimeout,
    UnknownOption,
)
from skylarkmq.clients.sdk.hooks import Hooks, Several
from skylarkmq.clients.sdk.message_queue_client import MessageQueueClient, connect
from skylarkmq.clients.sdk.producing.producer import Producer, ProducerStatistics
from skylarkmq.clients.sdk.producing.sends import SendResult, SendStatus
from skylarkmq.clients.sdk.producing.transactions import (
    LocalTransaction,
    TransactionChecker,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from skylarkmq.clients.sdk.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
from skylarkmq.protocol.bodies.message_queue import MessageQueue
from skylarkmq.protocol.message import Message, MessageExt

__all__ = [
    "LATER",
    "Admin",
    "Allocation",
    "BlockingHandler",
    "BrokerError",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ClientStatistics",
    "ConnectFailed",
    "ConnectionEvent",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerSettings",
    "ConsumerStatistics",
    "Credentials",
    "Deserializer",
    "HandlerTimeout",
    "Hooks",
    "InvalidArgument",
    "InvalidBody",
    "InvalidMessage",
    "InvalidResponse",
    "InvalidResult",
    "Later",
    "LocalTransaction",
    "Message",
    "MessageExt",
    "MessageHandler",
    "MessageQueue",
    "MessageQueueClient",
    "NoRoute",
    "Producer",
    "ProducerSettings",
    "ProducerStatistics",
    "PullConsumer",
    "PushConsumer",
    "QueuesCallback",
    "ReceivedMessage",
    "RequestTimeout",
    "SendResult",
    "SendStatus",
    "Several",
    "Sql92",
    "TlsSettings",
    "Topics",
    "TransactionChecker",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
    "UnknownOption",
    "connect",
]
