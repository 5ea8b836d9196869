"""The parts of PySpark's data source API that some versions lack, found by what PySpark contains.

    READ_LIMITS            4.2    Spark passes the start and the limit of a batch to a streaming reader, and supports
                                  Trigger.AvailableNow in several batches
    FILTERS                4.1    Spark passes filters to a batch reader
    StreamArrowWriter      4.1    a streaming writer that gets Arrow batches

An option that needs a missing part is refused, with the version that has it. No other module asks for a version.

PySpark 4.0 has no class for streaming writers that get Arrow batches. But it passes Arrow batches to every writer that
is a DataSourceArrowWriter, so a class that is a streaming writer, too, gets them. Without that, Spark would convert
each batch to Row objects, and the sink would convert them back.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple

import pyspark
from pyspark.sql import datasource

from skylarkmq.clients.spark.base.options import OptionError

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A streaming writer that gets Arrow batches in PySpark 4.0."""


class Feature(NamedTuple):
    """A part of PySpark. `since`: the first version that has it."""

    name: str
    since: str
    is_present: bool


READ_LIMITS: Final = Feature("limits for batches", "4.2", find_spec("pyspark.sql.streaming.datasource") is not None)
FILTERS: Final = Feature("filters for Python sources", "4.1", hasattr(datasource, "Filter"))


def require(feature: Feature, option: str) -> None:
    """Raise OptionError if this PySpark lacks a part that an option needs."""
    if not feature.is_present:
        raise OptionError(
            f"rocketmq: {option} needs PySpark {feature.since} or newer, which has {feature.name}; this is "
            f"{pyspark.__version__}"
        )


__all__ = ["FILTERS", "READ_LIMITS", "Feature", "StreamArrowWriter", "require"]
