"""A broker's consumer groups: subscriptionGroup.json; bodies of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) and
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225); responses to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201) and
GET_SUBSCRIPTIONGROUP_CONFIG (352).

Source: docs/reference/wire.md, "JSON bodies".
"""

from typing import Any

import msgspec

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.topic import DataVersion
from skylarkmq.protocol.headers.fields import Int32, Int64


class SimpleSubscriptionData(Body):
    """One topic of a group with fixed subscriptions, which RocketMQ's proxy stores. `version`: ms."""

    topic: str = ""
    expression_type: str = ""
    expression: str = ""
    version: Int64 = 0


class SubscriptionGroupConfig(Body):
    """One group. `which_broker_when_consume_slowly`: id of the broker that lagging members should pull from.

    Numbers have the ranges of RocketMQ's fields, which refuses others, too.
    """

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupWrapper(Body):
    """A broker's groups by name. `forbidden_table`: group -> topic -> bits; 4: reading forbidden."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = {}
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class SubscriptionGroupList(Body):
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: list[SubscriptionGroupConfig] = []
