"""Checks of topics: a route, queues to write to and to read from, and no queue that is written but not read."""

from collections.abc import Iterator
from typing import Final

from skylarkmq.clients.mqadmin.doctor.findings import Check, Finding, NotExamined, Outcomes, error, warning
from skylarkmq.clients.mqadmin.doctor.subject import Subject
from skylarkmq.clients.sdk.base.errors import ClientError, NoRoute
from skylarkmq.clients.sdk.connection.topic_route import MASTER
from skylarkmq.protocol.bodies.route import TopicRouteData
from skylarkmq.protocol.codes import DLQ_PREFIX, RETRY_PREFIX, Permission, SystemTopic, is_reserved_topic

MAX_TOPICS: Final = 200
"""Topics that are examined if no topic is given."""


async def topics(subject: Subject) -> Outcomes:
    """The topic that is given, or else each topic up to a limit, can be written and read."""
    await subject.known_states()
    wanted = subject.wanted.topic
    names = [wanted] if wanted is not None else await _names(subject)
    if len(names) > MAX_TOPICS:
        yield NotExamined("topics", f"{len(names) - MAX_TOPICS} of {len(names)} topics; give one with -t")
    for name in names[:MAX_TOPICS]:
        try:
            route = await subject.admin.topic_config.route(name)
        except NoRoute:
            next_step = "Create it (mqadmin updateTopic), or check that its brokers are registered."
            yield error(name, "no name server has a route of the topic", next_step)
        except ClientError as problem:
            next_step = "Find the broker that registered it: mqadmin topicRoute."
            yield error(name, f"its route cannot be used: {problem}", next_step)
        else:
            for finding in route_findings(name, route):
                yield finding


def route_findings(topic: str, route: TopicRouteData) -> Iterator[Finding]:
    """Yield the problems of a route."""
    masters = {data.broker_name for data in route.broker_datas if MASTER in data.broker_addrs}
    rows = sorted(route.queue_datas, key=lambda row: row.broker_name)
    writable = [
        row for row in rows if row.perm & Permission.WRITE and row.write_queue_nums > 0 and row.broker_name in masters
    ]
    readable = [row for row in rows if row.perm & Permission.READ and row.read_queue_nums > 0]
    grant = f"Allow it: mqadmin updateTopicPerm -t {topic} -p 6, or mqadmin addWritePerm; start masters that are down."
    for verb, those in (("written", writable), ("read", readable)):
        if not those:
            yield error(topic, f"the topic cannot be {verb} on any broker", grant)
            continue
        for row in rows:
            if row not in those:
                yield warning(f"{topic} on {row.broker_name}", f"the topic cannot be {verb} on this broker", grant)
    for row in rows:
        if row in writable and row in readable and row.write_queue_nums > row.read_queue_nums:
            unread = row.write_queue_nums - row.read_queue_nums
            what = f"messages in {unread} of {row.write_queue_nums} queues cannot be read"
            next_step = f"Set both to {row.write_queue_nums} (mqadmin updateTopic -r -w), and later reduce -w first."
            yield error(f"{topic} on {row.broker_name}", what, next_step)


async def _names(subject: Subject) -> list[str]:
    """Return the topics of applications."""
    made_by_brokers = {name for target in await subject.targets() for name in (target.name, target.cluster)}
    reserved = (RETRY_PREFIX, DLQ_PREFIX)
    return [
        name
        for name in await subject.admin.topics()
        if name.removesuffix(SystemTopic.REPLY_SUFFIX) not in made_by_brokers
        and not name.startswith(reserved)
        and not is_reserved_topic(name)
    ]


CHECKS: Final = (Check("topics", topics),)
