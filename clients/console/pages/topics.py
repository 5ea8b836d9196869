"""Topics: the list, one topic with its queues and groups, and its actions."""

from functools import partial
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from skylarkmq.clients.console.actions import Question, confirmed, form_page, refused
from skylarkmq.clients.console.cluster import ALL, Cluster, containing
from skylarkmq.clients.console.fields import checked_name, is_checked, whole
from skylarkmq.clients.console.paging import paging
from skylarkmq.clients.console.rendering import address, form_of, path_of, redirect, respond, wants_fragment
from skylarkmq.clients.console.state import cluster_of
from skylarkmq.clients.sdk.admin.gathering import gathered
from skylarkmq.clients.sdk.admin.topic_kinds import KINDS, NORMAL
from skylarkmq.clients.sdk.base.errors import BrokerError, InvalidArgument, NoRoute
from skylarkmq.protocol.bodies.topic import TopicConfig, permission_text
from skylarkmq.protocol.codes import ResponseCode
from skylarkmq.protocol.message import Message, check_client_topic

PERMISSIONS: Final = (6, 4, 2)
MAX_QUEUES: Final = 4_096
MAX_TEST_BYTES: Final = 256 * 1024


class TopicRow(NamedTuple):
    """A topic of the list; its queues and permission come from the broker with the most queues."""

    name: str
    brokers: str
    read_queues: int
    write_queues: int
    permission: str


async def topics(request: Request) -> Response:
    """Serve the list: filtered and paged here, so that 100,000 topics are no more work for a browser than 50."""
    cluster = cluster_of(request)
    text = request.query_params.get("q", "").strip()
    kind = request.query_params.get("kind", NORMAL)
    names = await containing((await cluster.topics()).get(kind, []), text)
    page = paging(request, len(names))
    rows = await gathered([partial(_row, cluster, name) for name in page.of(names)])
    return respond(request, "topics.html", rows=rows, paging=page, query=text, kind=kind, kinds=(*KINDS, ALL))


async def _row(cluster: Cluster, name: str) -> TopicRow:
    try:
        queues = (await cluster.admin.topic_config.route(name)).queue_datas
    except NoRoute:  # deleted meanwhile
        return TopicRow(name, "–", 0, 0, "–")
    brokers = sorted(data.broker_name for data in queues)
    shown = ", ".join(brokers[:3]) + (f" and {len(brokers) - 3} more" if len(brokers) > 3 else "")
    most = max(queues, key=lambda data: data.read_queue_nums, default=None)
    if most is None:
        return TopicRow(name, "–", 0, 0, "–")
    return TopicRow(name, shown, most.read_queue_nums, most.write_queue_nums, permission_text(most.perm))


async def topic(request: Request) -> Response:
    """Serve one topic."""
    name = request.path_params["topic"]
    admin = cluster_of(request).admin
    statistics = await admin.topic_config.statistics(name)
    queues = sorted(statistics.offset_table.items())
    is_refresh = wants_fragment(request)  # of the queues only
    groups = [] if is_refresh else sorted(await admin.topic_config.groups(name))
    configs = [] if is_refresh else await _configs(cluster_of(request), name)
    page, group_page = paging(request, len(queues)), paging(request, len(groups), "groups")
    return respond(
        request,
        "topic.html",
        topic=name,
        queues=page.of(queues),
        paging=page,
        groups=group_page.of(groups),
        group_paging=group_page,
        configs=configs,
        put_tps=statistics.topic_put_tps,
        messages=sum(offsets.max_offset - offsets.min_offset for _, offsets in queues),
        permission_text=permission_text,
    )


async def _configs(cluster: Cluster, name: str) -> list[tuple[str, TopicConfig]]:
    """Return the configuration on each master of the topic, by broker name."""
    route = await cluster.admin.topic_config.route(name)
    masters = [(data.broker_name, data.broker_addrs[0]) for data in route.broker_datas if 0 in data.broker_addrs]
    configs = await gathered([partial(_config_or_none, cluster, where, name) for _, where in sorted(masters)])
    return [
        (broker, config) for (broker, _), config in zip(sorted(masters), configs, strict=True) if config is not None
    ]


async def _config_or_none(cluster: Cluster, where: str, name: str) -> TopicConfig | None:
    try:
        return await cluster.admin.topic_config.get(where, name)
    except BrokerError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return None


async def topic_form(request: Request) -> Response:
    """Serve the form of a new topic, or of one to change."""
    name = request.query_params.get("topic")
    config = TopicConfig(name or "", 8, 8)
    brokers = sorted(await cluster_of(request).admin.masters())
    if name is not None:
        configs = await _configs(cluster_of(request), name)
        if configs:
            config = configs[0][1]
    return form_page(
        request, "topic_form.html", config=config, is_new=name is None, brokers=brokers, permissions=PERMISSIONS,
        permission_text=permission_text,
    )  # fmt: skip


async def put_topic(request: Request) -> Response:
    """Create a topic, or change it on brokers; attributes of 5.x keep their values."""
    form = form_of(request)
    back = address("/topic-form", topic=form.get("topic") if is_checked(request, "exists") else None)
    try:
        name = checked_name(request, "topic", check_client_topic)
        config = TopicConfig(
            name,
            whole(form.get("read_queues"), "Read queues", 1, MAX_QUEUES),
            whole(form.get("write_queues"), "Write queues", 1, MAX_QUEUES),
            whole(form.get("perm"), "Permission", 2, 6),
            order=is_checked(request, "order"),
        )
    except InvalidArgument as error:
        return refused(request, back, error)
    broker = form.get("broker") or None
    where = f"broker {broker}" if broker else "all brokers"

    async def run() -> str:
        cluster = cluster_of(request)
        masters = await cluster.admin.masters()
        if broker is not None and broker not in masters:
            raise InvalidArgument(f"no master of broker {broker} is registered. Registered: {', '.join(masters)}.")
        for each, where_it_is in masters.items():
            if broker in {None, each}:
                await cluster.admin.topic_config.put(where_it_is, config)
        return f"Topic {name} is stored on {where}."

    text = f"{config.write_queue_nums} write and {config.read_queue_nums} read queues on {where}"
    question = Question(f"Store topic {name}?", f"It gets {text}.", "Store the topic", back)
    return await confirmed(request, question, run, path_of("topics", name))


async def delete_topic(request: Request) -> Response:
    """Delete a topic."""
    name = request.path_params["topic"]

    async def run() -> str:
        await cluster_of(request).admin.delete_topic(name)
        return f"Topic {name} is deleted."

    effect = "Its messages and the offsets of its consumer groups are deleted on all brokers. This cannot be undone."
    question = Question(f"Delete topic {name}?", effect, "Delete the topic", path_of("topics", name), True)
    return await confirmed(request, question, run, "/topics")


async def send_form(request: Request) -> Response:
    """Serve the form of a test message."""
    return form_page(request, "send.html", topic=request.path_params["topic"])


async def send(request: Request) -> Response:
    """Send a test message."""
    name = request.path_params["topic"]
    back = path_of("topics", name, "send")
    form = form_of(request)
    body = form.get("body", "").encode()
    if len(body) > MAX_TEST_BYTES:
        return redirect(request, back, f"Not done: the body has more than {MAX_TEST_BYTES:,} bytes.", is_error=True)
    message = Message(name, body, tags=form.get("tags", "").strip(), keys=form.get("keys", "").split())

    async def run() -> str:
        producer = await cluster_of(request).producer()
        result = await producer.send(message)
        return f"Message {result.msg_id} is stored in queue {result.queue} at offset {result.queue_offset}."

    effect = f"The consumer groups of the topic get a message of {len(body):,} bytes."
    question = Question(f"Send a test message to {name}?", effect, "Send the message", back)
    return await confirmed(request, question, run, path_of("topics", name))


ROUTES = [
    Route("/topics", topics),
    Route("/topics", put_topic, methods=["POST"]),
    Route("/topic-form", topic_form),
    Route("/topics/{topic}", topic),
    Route("/topics/{topic}/delete", delete_topic, methods=["POST"]),
    Route("/topics/{topic}/send", send_form),
    Route("/topics/{topic}/send", send, methods=["POST"]),
]
