"""Metrics of quotas, by scope and kind and never by client, account or topic, and of the audit log."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from skylarkmq.broker.access.audit import AuditLog
from skylarkmq.broker.access.audit_writer import AuditStatistics
from skylarkmq.broker.access.quota_refusals import Refusals
from skylarkmq.broker.access.quotas import Quotas
from skylarkmq.broker.ops.steps import Steps, Value

NONE: Final = AuditStatistics(waiting=0, written=0, lost=0, failures=0)


class QuotaCollector:
    """Refused and delayed requests, and the tables of buckets; sums over the ports with quotas."""

    def __init__(self, quotas: Sequence[Quotas], refusals: Refusals) -> None:
        self._quotas = quotas
        self._refusals = refusals

    def __repr__(self) -> str:
        return f"<QuotaCollector {list(self._quotas)}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        for labels, count in list(self._refusals.by_kind.items()):
            yield Value("skylark_quota_refused_total", labels, count)
        delayed: Counter[tuple[str, str]] = Counter()
        keys: Counter[str] = Counter()
        evicted: Counter[str] = Counter()
        for one in self._quotas:
            now = one.statistics()
            delayed.update(now.delayed)
            keys.update({scope: meters.keys for scope, meters in now.meters.items()})
            evicted.update({scope: meters.evicted for scope, meters in now.meters.items()})
        for reason, count in delayed.items():
            yield Value("skylark_quota_delayed_total", reason, count)
        for scope in keys:
            yield Value("skylark_quota_keys", (scope,), keys[scope])
            yield Value("skylark_quota_keys_evicted_total", (scope,), evicted[scope])


class AuditCollector:
    """The audit log; zero without one."""

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit

    def __repr__(self) -> str:
        return f"<AuditCollector {self._audit!r}>"

    def __call__(self) -> Steps:
        """Yield every value."""
        now = NONE if self._audit is None else self._audit.statistics()
        yield Value("skylark_audit_entries_total", (), now.written)
        yield Value("skylark_audit_lost_total", (), now.lost)
        yield Value("skylark_audit_failures_total", (), now.failures)
        yield Value("skylark_audit_waiting", (), now.waiting)
