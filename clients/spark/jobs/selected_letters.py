"""The dead letters that the arguments of `mqspark-dead-letters` select."""

from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame, SparkSession

from skylarkmq.clients.spark.jobs.arguments import SETTINGS
from skylarkmq.clients.spark.jobs.dead_letters import letters, picked
from skylarkmq.clients.spark.jobs.messages import Selection, messages, where
from skylarkmq.clients.spark.session import started


class SelectedLetters(msgspec.Struct, frozen=True, kw_only=True):
    """Letters of a topic, store or archive; `pick`: of these groups; `condition`: SQL over their columns."""

    selection: Selection
    by: str
    pick: tuple[str, ...] = ()
    condition: str | None = None
    conf: Mapping[str, str] = {}
    master: str | None = None

    @property
    def is_narrowed(self) -> bool:
        """Whether any argument selects some of the letters of the topic."""
        times = self.selection.since_ms, self.selection.until_ms
        return bool(self.pick) or self.condition is not None or times != (None, None)

    def session(self, name: str) -> SparkSession:
        """Return the Spark session."""
        return started(f"{name} {self.selection.topic}", SETTINGS | dict(self.conf), self.master)

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the letters. Raises NotStarted for an invalid condition."""
        rows = letters(messages(spark, self.selection), self.by)
        return picked(rows if self.condition is None else where(rows, self.condition), self.pick)
