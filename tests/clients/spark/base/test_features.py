"""Options that need a part which this PySpark lacks are refused with the version that has it."""

import pyspark
import pytest

from skylarkmq.clients.spark.base.features import FILTERS, READ_LIMITS, Feature, require
from skylarkmq.clients.spark.base.options import OptionError


def test_a_missing_part_is_refused_with_the_version_that_has_it() -> None:
    """The error has the option, the version that is needed, and the one that is installed."""
    with pytest.raises(OptionError, match=f"minOffsetsPerTrigger needs PySpark 9.9 .*this is {pyspark.__version__}"):
        require(Feature("limits", "9.9", False), "minOffsetsPerTrigger")
    require(Feature("limits", "9.9", True), "minOffsetsPerTrigger")


@pytest.mark.parametrize("feature", [FILTERS, READ_LIMITS], ids=lambda feature: feature.name)
def test_a_part_is_found_since_its_version(feature: Feature) -> None:
    """What PySpark contains agrees with the version that the error names."""
    installed = tuple(map(int, pyspark.__version__.split(".")[:2]))
    assert feature.is_present == (installed >= tuple(map(int, feature.since.split("."))))
