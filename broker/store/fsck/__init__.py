"""Checks every invariant of a store directory, dumps records, and rebuilds queues and index from the log.

for finding in check(Path("store")):
    print(finding.severity, finding.file, finding.offset, finding.what)
"""

from skylarkmq.broker.store.fsck.directory import check
from skylarkmq.broker.store.fsck.findings import Finding, Progress, Severity
from skylarkmq.broker.store.fsck.sizes import Sizes

__all__ = ["Finding", "Progress", "Severity", "Sizes", "check"]
