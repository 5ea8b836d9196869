<<<<<<< HEAD
"""Tests of skylarkmq.broker.ha."""
=======
"""Tests of replication."""
>>>>>>> 7cc2bf94 (ha: the review of the core: swaps are told apart, no data before the first ACK, histories below the log's start)
