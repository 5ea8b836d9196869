"""The head of a pull's answer, up to its body, from one template.

Clients need all four offsets whatever became of the pull. JSON heads are made by filling in numbers; the other dialects
go through the general encoder, and say the same member by member. Source: docs/formats.md, "Pull".
"""

from typing import Final

from broker.store.reading import GetResult, GetStatus
from protocol.bodies.subscription_group import SubscriptionGroupConfig
from protocol.bodies.topic import TopicConfig
from protocol.codes import VERSION, Flag, ResponseCode
from protocol.command import JSON, LANGUAGE, RemotingCommand
from protocol.frame import encode_prefix
from protocol.headers.pull import PullMessageResponseHeader
from protocol.serialize import encode_head

MASTER_ID: Final = 0

_JSON: Final = (
    b'{"code":%%d,"extFields":{"groupSysFlag":"%%d","maxOffset":"%%d","minOffset":"%%d","nextBeginOffset":"%%d",'
    b'"suggestWhichBrokerId":"%%d","topicSysFlag":"%%d"},"flag":%d,"language":"%s","opaque":%%d,"remark":"%%s",'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}'
) % (Flag.RESPONSE, LANGUAGE.encode(), VERSION)

_FOUND: Final = GetStatus.FOUND
_JSON_FOUND: Final = _JSON.replace(b'"code":%d', b'"code":0').replace(b'"remark":"%s"', b'"remark":"FOUND"')


def pull_answer_head(
    request: RemotingCommand,
    code: ResponseCode,
    result: GetResult,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    ask_next: int = MASTER_ID,
) -> bytes:
    """The answer's frame up to a body of `result.total_bytes`; the remark is the status.

    `ask_next` is suggestWhichBrokerId: the replica that the consumer should ask from now on.
    """
    if request.dialect != JSON:
        return _general_head(request, code, result, topic, group, ask_next)
    if result.status is _FOUND:
        header = _JSON_FOUND % (
            group.group_sys_flag,
            result.max_offset,
            result.min_offset,
            result.next_begin_offset,
            ask_next,
            topic.topic_sys_flag,
            request.opaque,
        )
        return encode_prefix(JSON, len(header), result.total_bytes) + header
    header = _JSON % (
        code,
        group.group_sys_flag,
        result.max_offset,
        result.min_offset,
        result.next_begin_offset,
        ask_next,
        topic.topic_sys_flag,
        request.opaque,
        result.status.name.encode(),
    )
    return encode_prefix(JSON, len(header), result.total_bytes) + header


def _general_head(
    request: RemotingCommand,
    code: ResponseCode,
    result: GetResult,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
    ask_next: int = MASTER_ID,
) -> bytes:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=ask_next,
        next_begin_offset=result.next_begin_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
        topic_sys_flag=topic.topic_sys_flag,
        group_sys_flag=group.group_sys_flag,
    )
    response = RemotingCommand.response(code, result.status.name, header).answer_to(request)
    return encode_head(response, result.total_bytes)
