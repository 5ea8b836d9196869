"""Recovery: opening a store after a clean stop or a crash.

`recovery` finds the end of the log and rebuilds the queues. `queue_order` decides which records get a queue unit (also
for `store verify` and `store repair`). `lock_and_abort` records whether the last stop was clean.
"""
