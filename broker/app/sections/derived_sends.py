"""Requests that make the broker store a message of its own: retries of messages that consumers send back, replies to
requests, and recalls of timed messages.
"""

from typing import NamedTuple

from skylarkmq.broker.access.message_rights import MessageRights
from skylarkmq.broker.app.sections.addresses import address_text
from skylarkmq.broker.app.sections.production import Production, send_config
from skylarkmq.broker.app.sections.registering import Pools, register
from skylarkmq.broker.app.sections.tables import Tables
from skylarkmq.broker.base.clocks import Clock
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.delivery.calls.client_calls import ClientCalls
from skylarkmq.broker.delivery.calls.request_reply import Replies
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.processors.consumer.send_back import SendBackProcessor
from skylarkmq.broker.processors.send.checks import SendConfig
from skylarkmq.broker.processors.send.recall import RecallConfig, RecallProcessor
from skylarkmq.broker.processors.send.reply import ReplyProcessor
from skylarkmq.broker.remoting.dispatch import Dispatcher
from skylarkmq.broker.store.message_store import MessageStore


class DerivedSendsConfig(NamedTuple):
    """Settings of derived sends. `address`: of this broker, for the clients that get replies."""

    send: SendConfig
    recall: RecallConfig
    address: str
    are_replies_stored: bool


class DerivedSends:
    """Requests that make the broker store a message of its own: a retry, a reply, or a recall.

    `puts` stores the messages, `deferral` delays retries and recalls; `now_ms` returns Unix time.
    """

    def __init__(
        self,
        config: DerivedSendsConfig,
        tables: Tables,
        production: Production,
        store: MessageStore,
        puts: InternalPuts,
        deferral: Deferral,
        calls: ClientCalls,
        rights: MessageRights,
        now_ms: Clock,
    ) -> None:
        topics, groups = tables.topics, tables.groups
        self._tables = tables
        self.replies = Replies(tables.sessions, calls, config.address, now_ms)
        self.send_backs = SendBackProcessor(config.send, topics, groups, store, puts, deferral.defer, rights, now_ms)
        self.reply_sends = ReplyProcessor(
            production.checks,
            production.messages,
            puts,
            production.responses,
            self.replies,
            are_stored=config.are_replies_stored,
        )
        self.recalls = RecallProcessor(config.recall, topics, deferral.defer, puts, now_ms)

    def __repr__(self) -> str:
        return f"<DerivedSends {self.replies!r}>"

    def register(self, dispatcher: Dispatcher, pools: Pools) -> None:
        """Register the processors."""
        processors = (("send", self.send_backs), ("reply", self.reply_sends), ("send", self.recalls))
        register(dispatcher, pools, processors)

    def attach(self) -> None:
        """Follow deletions of topics and groups."""
        self._tables.topics.on_delete(self.send_backs.sent_back.remove_topic)
        self._tables.groups.on_delete(self.send_backs.sent_back.remove_group)


def derived_sends_config(config: DaemonConfig) -> DerivedSendsConfig:
    """Return the settings of derived sends."""
    return DerivedSendsConfig(
        send_config(config),
        recall_config(config),
        address_text(config.listen.advertised_ip, config.listen.port),
        config.broker.store_reply_message_enable,
    )


def recall_config(config: DaemonConfig) -> RecallConfig:
    """Return whether timer messages may be recalled."""
    broker = config.broker
    return RecallConfig(
        is_enabled=broker.recall_message_enable,
        broker_name=broker.broker_name,
        cluster_name=broker.broker_cluster_name,
        region=broker.region_id,
        start_accept_ms=broker.start_accept_send_request_time_stamp,
        max_delay_ms=config.store.timer_max_delay_sec * 1000,
    )
