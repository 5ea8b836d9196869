"""Subscription groups have the members and defaults of 5.3.3."""

from skylarkmq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper

DEFAULTS = (
    b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,'
    b'"consumeMessageOrderly":false,"consumeTimeoutMinute":15,"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},'
    b'"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
    b'"whichBrokerWhenConsumeSlowly":1}'
)


def test_defaults_are_those_of_rocketmq() -> None:
    """A group of which only the name is set is written as 5.3.3 writes it."""
    assert SubscriptionGroupConfig("g").encode() == DEFAULTS
    assert SubscriptionGroupConfig.decode(DEFAULTS) == SubscriptionGroupConfig("g")


def test_the_table_of_groups_round_trips() -> None:
    """The table of groups keeps groups and forbidden topics."""
    wrapper = SubscriptionGroupWrapper(
        forbidden_table={"g": {"T": 4}}, subscription_group_table={"g": SubscriptionGroupConfig("g")}
    )
    assert SubscriptionGroupWrapper.decode(wrapper.encode()) == wrapper
    assert SubscriptionGroupWrapper.decode(b'{"subscriptionGroupTable":{"g":{"groupName":"g"}}}').forbidden_table == {}
