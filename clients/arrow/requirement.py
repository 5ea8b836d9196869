"""Checks that NumPy and PyArrow are installed, so that the import error names the extra that brings them."""

try:
    import numpy as np  # noqa: F401
    import pyarrow as pa  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"skylarkmq.arrow needs NumPy and PyArrow ({error}): pip install 'skylarkmq[arrow]'", name="pyarrow"
    ) from error
