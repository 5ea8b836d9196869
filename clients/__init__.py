"""The SDK, asyncio first: producers and consumers for this broker and for Apache RocketMQ."""

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
from clients.group_member import ConsumeFrom
from clients.producer import Producer
from clients.pull_consumer import PullConsumer
from clients.push_consumer import PushConsumer
from clients.sends import SendResult, SendStatus
from clients.settings import ClientSettings, ConsumerSettings, ProducerSettings, TlsSettings
from protocol.bodies.message_queue import MessageQueue
from protocol.message import Message, MessageExt

__all__ = [
    "BrokerError",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientSettings",
    "ConnectFailed",
    "ConnectionLost",
    "ConsumeFrom",
    "ConsumerSettings",
    "InvalidMessage",
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
    "TlsSettings",
]
