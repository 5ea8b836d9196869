"""The sections of `Admin` with blocking calls, for `skylarkmq.blocking.Admin`.

Each method waits for the method of the same name of the asyncio section: same arguments, results and errors.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from skylarkmq.clients.sdk.admin import (
    access,
    brokers,
    group_config,
    messages,
    name_servers,
    offsets,
    topic_config,
)
from skylarkmq.clients.sdk.base.background_loop import run
from skylarkmq.protocol.message import MessageExt

T = TypeVar("T")
S = TypeVar("S")
Arguments = ParamSpec("Arguments")


class Section(Generic[S]):
    """A section whose calls run on the background loop."""

    def __init__(self, section: S) -> None:
        self._section = section

    def __repr__(self) -> str:
        return f"<Blocking {self._section}>"


def _waits(
    method: Callable[Concatenate[S, Arguments], Awaitable[T]],
) -> Callable[Concatenate[Section[S], Arguments], T]:
    """Return a blocking method with the signature of a coroutine method."""

    @wraps(method)
    def call(blocking: Section[S], /, *args: Arguments.args, **options: Arguments.kwargs) -> T:
        async def called() -> T:
            return await method(blocking._section, *args, **options)

        return run(called())

    return call


class Brokers(Section[brokers.Brokers]):
    """The section `Admin.brokers`, blocking."""

    cluster = _waits(brokers.Brokers.cluster)
    masters = _waits(brokers.Brokers.masters)
    addresses = _waits(brokers.Brokers.addresses)
    runtime_info = _waits(brokers.Brokers.runtime_info)
    config = _waits(brokers.Brokers.config)
    update_config = _waits(brokers.Brokers.update_config)
    ha_status = _waits(brokers.Brokers.ha_status)
    reset_master_flush_offset = _waits(brokers.Brokers.reset_master_flush_offset)
    consume_stats = _waits(brokers.Brokers.consume_stats)
    stats = _waits(brokers.Brokers.stats)
    producers = _waits(brokers.Brokers.producers)
    clean_expired_queues = _waits(brokers.Brokers.clean_expired_queues)
    clean_unused_topics = _waits(brokers.Brokers.clean_unused_topics)
    delete_expired_log = _waits(brokers.Brokers.delete_expired_log)


class TopicConfigs(Section[topic_config.TopicConfigs]):
    """The section `Admin.topic_config`, blocking."""

    put = _waits(topic_config.TopicConfigs.put)
    put_all = _waits(topic_config.TopicConfigs.put_all)
    get = _waits(topic_config.TopicConfigs.get)
    create = _waits(topic_config.TopicConfigs.create)
    delete = _waits(topic_config.TopicConfigs.delete)
    delete_on_brokers = _waits(topic_config.TopicConfigs.delete_on_brokers)
    delete_on_name_servers = _waits(topic_config.TopicConfigs.delete_on_name_servers)
    names = _waits(topic_config.TopicConfigs.names)
    table = _waits(topic_config.TopicConfigs.table)
    system_names = _waits(topic_config.TopicConfigs.system_names)
    route = _waits(topic_config.TopicConfigs.route)
    queues = _waits(topic_config.TopicConfigs.queues)
    offsets = _waits(topic_config.TopicConfigs.offsets)
    groups = _waits(topic_config.TopicConfigs.groups)
    statistics = _waits(topic_config.TopicConfigs.statistics)
    clusters = _waits(topic_config.TopicConfigs.clusters)


class GroupConfigs(Section[group_config.GroupConfigs]):
    """The section `Admin.group_config`, blocking."""

    put = _waits(group_config.GroupConfigs.put)
    put_all = _waits(group_config.GroupConfigs.put_all)
    on_broker = _waits(group_config.GroupConfigs.on_broker)
    table = _waits(group_config.GroupConfigs.table)
    groups = _waits(group_config.GroupConfigs.groups)
    create = _waits(group_config.GroupConfigs.create)
    delete_on_masters = _waits(group_config.GroupConfigs.delete_on_masters)
    delete = _waits(group_config.GroupConfigs.delete)
    members = _waits(group_config.GroupConfigs.members)
    consumers = _waits(group_config.GroupConfigs.consumers)
    producers = _waits(group_config.GroupConfigs.producers)
    running_info = _waits(group_config.GroupConfigs.running_info)
    readers = _waits(group_config.GroupConfigs.readers)


class Offsets(Section[offsets.Offsets]):
    """The section `Admin.offsets`, blocking."""

    progress = _waits(offsets.Offsets.progress)
    of_group = _waits(offsets.Offsets.of_group)
    lag = _waits(offsets.Offsets.lag)
    commit = _waits(offsets.Offsets.commit)
    reset_to = _waits(offsets.Offsets.reset_to)
    reset = _waits(offsets.Offsets.reset)
    reset_or_roll_back = _waits(offsets.Offsets.reset_or_roll_back)
    reset_queue = _waits(offsets.Offsets.reset_queue)
    at_time = _waits(offsets.Offsets.at_time)
    roll_back = _waits(offsets.Offsets.roll_back)
    clone = _waits(offsets.Offsets.clone)


class Messages(Section[messages.Messages]):
    """The section `Admin.messages`, blocking."""

    find = _waits(messages.Messages.find)
    at = _waits(messages.Messages.at)
    with_key = _waits(messages.Messages.with_key)
    with_unique_key = _waits(messages.Messages.with_unique_key)
    with_key_or_id = _waits(messages.Messages.with_key_or_id)
    of_key = _waits(messages.Messages.of_key)
    of_id = _waits(messages.Messages.of_id)
    earliest = _waits(messages.Messages.earliest)
    bounds = _waits(messages.Messages.bounds)
    pull = _waits(messages.Messages.pull)
    queue_units = _waits(messages.Messages.queue_units)
    tracks = _waits(messages.Messages.tracks)
    trace = _waits(messages.Messages.trace)
    consume_directly = _waits(messages.Messages.consume_directly)

    def between(
        self, topic: str, since: datetime, until: datetime, *, timeout_s: float | None = None
    ) -> list[MessageExt]:
        """Return the messages that `between` of the asyncio section yields, as a list."""

        async def collect() -> list[MessageExt]:
            return [message async for message in self._section.between(topic, since, until, timeout_s=timeout_s)]

        return run(collect())


class Access(Section[access.Access]):
    """The section `Admin.access`, blocking."""

    create_user = _waits(access.Access.create_user)
    update_user = _waits(access.Access.update_user)
    delete_user = _waits(access.Access.delete_user)
    user = _waits(access.Access.user)
    users = _waits(access.Access.users)
    create_acl = _waits(access.Access.create_acl)
    update_acl = _waits(access.Access.update_acl)
    delete_acl = _waits(access.Access.delete_acl)
    acl = _waits(access.Access.acl)
    acls = _waits(access.Access.acls)
    put_plain_account = _waits(access.Access.put_plain_account)
    delete_plain_account = _waits(access.Access.delete_plain_account)
    set_white_addresses = _waits(access.Access.set_white_addresses)
    plain_acl_versions = _waits(access.Access.plain_acl_versions)


class NameServerAdmin(Section[name_servers.NameServerAdmin]):
    """The section `Admin.name_servers`, blocking."""

    config = _waits(name_servers.NameServerAdmin.config)
    update_config = _waits(name_servers.NameServerAdmin.update_config)
    get = _waits(name_servers.NameServerAdmin.get)
    put = _waits(name_servers.NameServerAdmin.put)
    delete = _waits(name_servers.NameServerAdmin.delete)
    wipe_write_permission = _waits(name_servers.NameServerAdmin.wipe_write_permission)
    add_write_permission = _waits(name_servers.NameServerAdmin.add_write_permission)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses, `host:port`."""
        return self._section.addresses
