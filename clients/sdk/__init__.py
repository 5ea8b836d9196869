"""The SDK: asyncio producers and consumers for this broker and for Apache RocketMQ. Programs begin with `connect`.

    message_queue_client, blocking   `connect`, and the same classes with blocking calls, for scripts and threads
    admin                            topics, groups, offsets and messages of a cluster
    consuming                        consumers: members of groups, pulls, handlers, acknowledgments
    producing                        producers: sends, transactions, requests, message traces
    connection                       connections, routes, heartbeats, and what all objects of the SDK have in common
    telemetry                        hooks, and the hooks for OpenTelemetry and Prometheus
    messages                         messages prepared for sending, stored messages, results of sends
    base                             errors, settings, checks of arguments

Modules of a folder import only folders below it in this list.

docs/use/sdk.md introduces them.
"""

from skylarkmq.clients.sdk.admin.admin import Admin
from skylarkmq.clients.sdk.base.errors import (
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
from skylarkmq.clients.sdk.base.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
from skylarkmq.clients.sdk.base.signing import Credentials
from skylarkmq.clients.sdk.connection.client import Client, ClientStatistics
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
from skylarkmq.clients.sdk.message_queue_client import MessageQueueClient, connect
from skylarkmq.clients.sdk.messages.send_result import SendResult, SendStatus
from skylarkmq.clients.sdk.producing.producer import Producer, ProducerStatistics
from skylarkmq.clients.sdk.producing.transactions import (
    LocalTransaction,
    TransactionChecker,
    TransactionProducer,
    TransactionResult,
    TransactionState,
)
from skylarkmq.clients.sdk.telemetry.connection_events import ConnectionEvent
from skylarkmq.clients.sdk.telemetry.hooks import Hooks, Several
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
