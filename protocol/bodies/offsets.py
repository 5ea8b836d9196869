"""Committed offsets of all groups: the content of consumerOffset.json, and the response to GET_ALL_CONSUMER_OFFSET
(43).

Source: docs/reference/wire.md, "JSON bodies".
"""

from skylarkmq.protocol.bodies.body import Body
from skylarkmq.protocol.bodies.topic import DataVersion


class ConsumerOffsets(Body):
    """`offset_table`: `topic@group` -> queue id -> offset. `group_topic_map`: the topics by group; readers ignore
    it."""

    data_version: DataVersion | None = None
    group_topic_map: dict[str, list[str]] | None = None
    offset_table: dict[str, dict[int, int]] = {}


class DelayOffsets(Body):
    """Progress of the delay levels: the content of delayOffset.json, and the response to GET_ALL_DELAY_OFFSET (45).

    `offset_table`: delay level, from 1 on -> queue offset of the next message to deliver.
    """

    data_version: DataVersion | None = None
    offset_table: dict[int, int] = {}
