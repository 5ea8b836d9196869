"""`mqspark-replay` from Python: messages of an archive, a store directory or a topic are sent again, each once.

    from skylarkmq.spark_replay import Archive, ClusterOptions, Replay, Selection, run

    replay = Replay(
        source=Archive("lake/archive"),
        selection=Selection(topics=("Orders",)),
        cluster=ClusterOptions(name_server="127.0.0.1:9876"),
        directory="replay-1",
    )
    summary = run(replay)

Calling `run` again with the same definition resumes (docs/use/spark/archive.md).
"""

from skylarkmq.clients.arrow.topic.options import ClusterOptions
from skylarkmq.clients.spark.replay.queue_senders import Limits
from skylarkmq.clients.spark.replay.replay import Replay, run
from skylarkmq.clients.spark.replay.selection import Place, Selection
from skylarkmq.clients.spark.replay.sources import Archive, ArchiveTable, Store, Topics
from skylarkmq.clients.spark.replay.targets import Targets

__all__ = [
    "Archive",
    "ArchiveTable",
    "ClusterOptions",
    "Limits",
    "Place",
    "Replay",
    "Selection",
    "Store",
    "Targets",
    "Topics",
    "run",
]
