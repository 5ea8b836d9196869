"""Settings that the parts of a running broker apply at once: one subscription each.

A subscription selects the part of the configuration that a component uses, and the callback for a changed value. All
other settings take effect at the next start. Source: docs/reference/behaviour.md, "Settings at run time".
"""

from collections.abc import Mapping

from skylarkmq.broker.app.live_fields import live_namesrv, live_remoting, live_store, live_timer
from skylarkmq.broker.app.parts import Parts
from skylarkmq.broker.app.sections.consumption import notices_config, pull_config
from skylarkmq.broker.app.sections.delivery import transactions_config
from skylarkmq.broker.app.sections.derived_sends import recall_config
from skylarkmq.broker.app.sections.pools import pool_limits_of
from skylarkmq.broker.app.sections.production import send_config
from skylarkmq.broker.app.sections.tables import groups_config, offsets_config
from skylarkmq.broker.config.live import LiveSettings
from skylarkmq.broker.config.sections import DaemonConfig
from skylarkmq.broker.remoting.admission import Pool, PoolLimits


def subscribe_parts(settings: LiveSettings[DaemonConfig], parts: Parts) -> None:
    """Subscribe the parts to every change that they can apply."""
    subscribe = settings.subscribe
    tables, consumption, production = parts.tables, parts.consumption, parts.production
    derived_sends, administration, delivery = parts.derived_sends, parts.administration, parts.delivery
    subscribe(lambda config: config.broker.broker_permission, tables.topics.permit)
    subscribe(
        lambda config: config.broker.auto_create_topic_enable,
        lambda allowed: tables.topics.allow_auto_creation(allowed=allowed),
    )
    subscribe(groups_config, tables.groups.configure)
    subscribe(offsets_config, tables.offsets.configure)
    subscribe(lambda config: config.limits, tables.limits.configure)
    subscribe(live_store(settings.config), parts.store.configure)
    subscribe(send_config, production.checks.configure)
    subscribe(send_config, derived_sends.send_backs.configure)
    subscribe(lambda config: config.store.max_message_size, production.messages.set_max_message_size)
    subscribe(lambda config: config.store.max_message_size, parts.delivery_requests.ends.set_max_message_size)
    subscribe(transactions_config, delivery.transactions.configure)
    subscribe(
        lambda config: (config.broker.region_id, config.broker.trace_on),
        lambda values: production.responses.configure(values[0], trace_on=values[1]),
    )
    subscribe(lambda config: config.broker.rebalance_lock_max_live_time, consumption.queue_locks.configure)
    subscribe(
        lambda config: config.broker.store_reply_message_enable,
        lambda stored: derived_sends.reply_sends.configure(are_stored=stored),
    )
    subscribe(
        lambda config: config.broker.use_server_side_reset_offset,
        lambda by_broker: administration.resets.configure(by_broker=by_broker),
    )
    subscribe(pull_config, consumption.pulls.configure)
    subscribe(lambda config: config.store.default_query_max_num, consumption.queries.limit_unique_keys)
    subscribe(notices_config, consumption.clients.configure)
    subscribe(
        lambda config: config.broker.start_accept_send_request_time_stamp,
        administration.runtime.accept_sends_from,
    )
    subscribe(pool_limits_of, lambda limits: _limit(parts.pools, limits))
    subscribe(live_timer(settings.config), delivery.timers.configure)
    subscribe(lambda config: config.broker.flush_delay_offset_interval, delivery.delay_offsets.save_every)
    subscribe(recall_config, derived_sends.recalls.configure)
    subscribe(lambda config: config.quotas, parts.usage.configure)
    subscribe(lambda config: config.audit.audit_sample_one_in, parts.usage.sample)
    subscribe(live_remoting(settings.config), parts.server.selector.configure)
    name_server, namesrv = parts.registration.name_server, settings.config.namesrv
    if name_server is not None and namesrv is not None:
        subscribe(live_namesrv(namesrv), name_server.configure)


def _limit(pools: Mapping[str, Pool], limits: Mapping[str, tuple[int, PoolLimits]]) -> None:
    for name, (capacity, limit) in limits.items():
        pools[name].configure(capacity, limit)
