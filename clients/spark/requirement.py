"""Checks that PySpark and PyArrow are installed, so that the import error names the extra that brings them."""

try:
    import pyarrow  # noqa: F401
    import pyspark.sql.datasource  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"skylarkmq.spark needs PySpark 4.0 or newer and PyArrow ({error}): pip install 'skylarkmq[spark]'",
        name="pyspark",
    ) from error
