"""Which settings the parts of a running broker take over when an operator changes them: a line for each.

A line names what of the configuration a part runs with, and what to call when that has changed. What stands in no line
is taken over at the next start. Source: docs/formats.md, "Settings at run time".
"""

from collections.abc import Mapping

from skylarkmq.broker.config.derived import (
    groups_config,
    live_namesrv,
    live_remoting,
    live_store,
    live_timer,
    notices_config,
    offsets_config,
    pool_limits_of,
    pull_config,
    recall_config,
    send_config,
    transactions_config,
)
from skylarkmq.broker.config.live import LiveSettings
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.parts import Parts
from skylarkmq.broker.remoting.admission import Pool, PoolLimits


def follow_settings(settings: LiveSettings[DaemonConfig], parts: Parts) -> None:
    """Have the parts hear of every change that they can act on."""
    follow = settings.follow
    follow(lambda config: config.broker.broker_permission, parts.topics.permit)
    follow(
        lambda config: config.broker.auto_create_topic_enable,
        lambda allowed: parts.topics.allow_auto_creation(allowed=allowed),
    )
    follow(groups_config, parts.groups.configure)
    follow(offsets_config, parts.offsets.configure)
    follow(lambda config: config.limits, parts.limits.configure)
    follow(live_store(settings.config), parts.store.configure)
    follow(send_config, parts.send_checks.configure)
    follow(send_config, parts.send_backs.configure)
    follow(lambda config: config.store.max_message_size, parts.send_messages.limit)
    follow(lambda config: config.store.max_message_size, parts.ends.limit)
    follow(transactions_config, parts.background.transactions.configure)
    follow(
        lambda config: (config.broker.region_id, config.broker.trace_on),
        lambda told: parts.send_answers.configure(told[0], trace_on=told[1]),
    )
    follow(lambda config: config.broker.rebalance_lock_max_live_time, parts.queue_locks.configure)
    follow(
        lambda config: config.broker.store_reply_message_enable,
        lambda stored: parts.reply_sends.configure(are_stored=stored),
    )
    follow(
        lambda config: config.broker.use_server_side_reset_offset,
        lambda by_broker: parts.resets.configure(by_broker=by_broker),
    )
    follow(pull_config, parts.pulls.configure)
    follow(lambda config: config.store.default_query_max_num, parts.queries.limit_unique_keys)
    follow(notices_config, parts.clients.configure)
    follow(lambda config: config.broker.start_accept_send_request_time_stamp, parts.runtime.accept_sends_from)
    follow(pool_limits_of, lambda limits: _limit(parts.pools, limits))
    follow(live_timer(settings.config), parts.background.timers.configure)
    follow(lambda config: config.broker.flush_delay_offset_interval, parts.background.delay_offsets.save_every)
    follow(recall_config, parts.recalls.configure)
    follow(live_remoting(settings.config), parts.server.selector.configure)
    name_server, namesrv = parts.name_server, settings.config.namesrv
    if name_server is not None and namesrv is not None:
        follow(live_namesrv(namesrv), name_server.configure)


def _limit(pools: Mapping[str, Pool], limits: Mapping[str, tuple[int, PoolLimits]]) -> None:
    for name, (capacity, limit) in limits.items():
        pools[name].configure(capacity, limit)
