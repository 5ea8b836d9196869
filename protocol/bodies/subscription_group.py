"""Consumer groups as a broker keeps them: subscriptionGroup.json, answers to 201 and 352, what 200 and 225 bring.

Source: docs/formats.md, "JSON bodies".
"""

from typing import Any

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.topic import DataVersion


class SubscriptionGroupConfig(Body):
    """One group. `which_broker_when_consume_slowly`: the broker id that lagging members are sent to."""

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = {}


class SubscriptionGroupWrapper(Body):
    """A broker's groups by name. `forbidden_table`: group -> topic -> bits, 4 = reading forbidden."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class SubscriptionGroupList(Body):
    """Request 225."""

    group_config_list: list[SubscriptionGroupConfig] = []
