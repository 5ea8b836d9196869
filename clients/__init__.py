"""The SDK: asyncio producers and consumers for this broker and for Apache RocketMQ. Programs begin with `connect`.

    clients.options               the options of all classes; limits and times: clients.settings
    clients.blocking              the same classes with blocking calls, for scripts and threads
    clients.consuming.allocation  the rules by which the members of a group share queues
    clients.hooks                 observers; clients.telemetry has those for OpenTelemetry and Prometheus

docs/sdk.md introduces them.
"""

from skylarkmq.clients.admin.admin import Admin
from skylarkmq.clients.connection.client import Client, ClientStatistics
from skylarkmq.clients.connection.connection_events import ConnectionEvent
from skylarkmq.clients.connection.signing import Credentials
from skylarkmq.clients.consuming.allocation import Allocation
from skylarkmq.clients.consuming.consumer import ConsumerStatistics
from skylarkmq.clients.consuming.group_member import ConsumeFrom, Sql92, Topics
from skylarkmq.clients.consuming.handler_calls import HandlerTimeout, InvalidResult
from skylarkmq.clients.consuming.handlers import BlockingHandler, MessageHandler
from skylarkmq.clients.consuming.later import LATER, Later
from skylarkmq.clients.consuming.pull_consumer import PullConsumer
from skylarkmq.clients.consuming.push_consumer import PushConsumer
from skylarkmq.clients.consuming.rebalance_callbacks import QueuesCallback
from skylarkmq.clients.consuming.received_message import Deserializer, ReceivedMessage
from skylarkmq.clients.errors import (
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
from skylarkmq.clients.hooks import Hooks, Several
from skylarkmq.clients.message_queue_client import MessageQueueClient, connect
from skylarkmq.clients.producing.producer import Producer, ProducerStatistics
from skylarkmq.clients.producing.sends import SendResult, SendStatus
from skylarkmq.clients.producing.transactions import (
    LocalTransaction,
    TransactionChecker,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from skylarkmq.clients.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
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
