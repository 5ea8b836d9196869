"""The error without PyArrow."""

import importlib
import sys

import pytest

from skylarkmq.clients.arrow import requirement


def test_the_import_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy alone is not enough."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'skylarkmq\[arrow\]'"):
        importlib.reload(requirement)
