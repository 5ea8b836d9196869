"""CommitLog records as Arrow record batches: from a store directory (`store`) or from brokers (`topic`).

The modules of this package convert the records, one module for each kind of column. The public functions are in
`skylarkmq.arrow`; the Spark sources (clients/spark) are adapters over the same readers. Requires NumPy and PyArrow:
`pip install 'skylarkmq[arrow]'` installs them.
"""

import skylarkmq.clients.arrow.requirement  # noqa: F401 - first: raises the import error with the advice
