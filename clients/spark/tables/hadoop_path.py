"""Paths in any file system that Spark supports, through Hadoop's API in the driver."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import SparkSession


class HadoopFile(NamedTuple):
    """A file of a listing. `changed_ms`: when it was last changed, in ms since 1970."""

    path: "HadoopPath"
    changed_ms: int


class HadoopPath:
    """An absolute path, and its file system."""

    def __init__(self, jvm: Any, system: Any, path: Any) -> None:
        self._jvm = jvm
        self._system = system
        self._path = path

    @classmethod
    def of(cls, spark: SparkSession, path: str) -> "HadoopPath":
        """Return a path; relative ones begin at the working directory of the file system."""
        jvm: Any = spark._jvm
        given = jvm.org.apache.hadoop.fs.Path(path)
        system = given.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
        return cls(jvm, system, system.makeQualified(given))

    def __repr__(self) -> str:
        return f"<HadoopPath {self.uri}>"

    @property
    def uri(self) -> str:
        """Return the path as Spark writes it, such as file:/lake/part-0.parquet; special characters are escaped."""
        return str(self._path.toUri().toString())

    @property
    def location(self) -> str:
        """Return the path as `HadoopPath.of` and Spark's readers and writers take it: nothing is escaped."""
        return str(self._path.toString())

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return str(self._path.getName())

    def child(self, name: str) -> "HadoopPath":
        """Return a path in this directory."""
        return HadoopPath(self._jvm, self._system, self._jvm.org.apache.hadoop.fs.Path(self._path, name))

    def exists(self) -> bool:
        """Return whether the path exists."""
        return bool(self._system.exists(self._path))

    def files(self) -> Iterator[HadoopFile]:
        """Yield all files below this directory."""
        found = self._system.listFiles(self._path, True)
        while found.hasNext():
            status = found.next()
            yield HadoopFile(HadoopPath(self._jvm, self._system, status.getPath()), status.getModificationTime())

    def text(self) -> str:
        """Return the text of a file."""
        stream = self._system.open(self._path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def delete(self) -> None:
        """Delete a file."""
        self._system.delete(self._path, False)
