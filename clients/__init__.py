"""The SDK, asyncio first: producers and consumers for this broker and for Apache RocketMQ."""

from clients.admin import Admin
from clients.client import Client
from clients.errors import (
    BrokerError,
    ClientClosed,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    InvalidMessage,
    NoRoute,
    RequestTimeout,
)
from clients.group_member import ConsumeFrom, Sql92
from clients.producer import Producer
from clients.pull_consumer import PullConsumer
from clients.push_consumer import PushConsumer
from clients.send_back import LATER, Later
from clients.sends import SendResult, SendStatus
from clients.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
from clients.signing import Credentials
from clients.transactions import TransactionProducer, TransactionResult, TransactionState
from protocol.bodies.message_queue import MessageQueue
from protocol.message import Message, MessageExt

__all__ = [
    "LATER",
    "Admin",
    "BrokerError",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerSettings",
    "Credentials",
    "InvalidMessage",
    "Later",
    "Message",
    "MessageExt",
    "MessageQueue",
    "NoRoute",
    "Producer",
    "ProducerSettings",
    "PullConsumer",
    "PushConsumer",
    "RequestTimeout",
    "SendResult",
    "SendStatus",
    "Sql92",
    "TlsSettings",
    "TransactionProducer",
    "TransactionResult",
    "TransactionState",
]
