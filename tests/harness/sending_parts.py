"""A broker's parts with the requests that store messages of its own: send-backs, replies, recalls.

    parts = SendingParts(directory, broker_permission=4)
    response = await parts.peer().call_and_wait(command)

The sections are those of `broker/app/sections`, as in a broker.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from skylarkmq.broker.access.message_rights import AllMessages
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.app.sections.derived_sends import DerivedSends, DerivedSendsConfig
from skylarkmq.broker.app.sections.production import Production, ProductionConfig
from skylarkmq.broker.counters.put_latency import PutLatency
from skylarkmq.broker.delivery.deferral import Deferral
from skylarkmq.broker.delivery.internal_puts import InternalPuts
from skylarkmq.broker.delivery.timer.admission import TimerAdmission, TimerConfig
from skylarkmq.broker.processors.send.checks import SendConfig
from skylarkmq.broker.processors.send.recall import RecallConfig
from skylarkmq.broker.store.files.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from skylarkmq.protocol.message_id import encode_host
from tests.harness.broker_parts import BrokerParts, config_part

ADDRESS = "10.0.0.1:10911"
LEVELS = parse_delay_levels(DEFAULT_DELAY_LEVELS)


class SendingParts(BrokerParts):
    """`levels`: delays of the delay levels, ms. `are_replies_stored`: as of DerivedSendsConfig."""

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, **settings)
        send = config_part(SendConfig, settings, broker_ip="10.0.0.1")
        self.deferral = Deferral(settings.get("levels", LEVELS), TimerAdmission(TimerConfig(), lambda _out_ms: 0).defer)
        production = Production(
            ProductionConfig(
                send,
                max_message_size=4 << 20,
                cluster_name="C",
                broker_name="b",
                region_id="R",
                trace_on=True,
                store_host=encode_host("10.0.0.1", 10911),
            ),
            self.tables,
            self.store,
            self.deferral,
            PutLatency(self.dispatcher.latencies),
            self.pool,
            lambda _group: False,
            lambda: "MADE",
            self.clock,
            Refusals(),
        )
        recall = RecallConfig(
            is_enabled=True, broker_name="b", cluster_name="C", region="R", start_accept_ms=0, max_delay_ms=86_400_000
        )
        self.derived = DerivedSends(
            DerivedSendsConfig(send, recall, ADDRESS, settings.get("are_replies_stored", True)),
            self.tables,
            production,
            self.store,
            InternalPuts(self.store),
            self.deferral,
            self.calls,
            AllMessages(),
            self.clock,
        )
        self.derived.register(self.dispatcher, defaultdict(lambda: self.pool))
        self.derived.attach()
