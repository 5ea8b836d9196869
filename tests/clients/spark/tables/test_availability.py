"""Which writer a session has, and the advice if it has none."""

import pytest

from skylarkmq.clients.spark.tables.availability import (
    DELTA_CATALOG_CLASS,
    DELTA_CLASS,
    EXTENSIONS,
    ICEBERG_CLASS,
    SESSION_CATALOG,
    Engine,
    Unavailable,
    choose_iceberg_engine,
    delta_advice,
    session_settings,
)
from skylarkmq.clients.spark.tables.evolution import TableFormat


@pytest.mark.parametrize(
    ("wanted", "has_runtime", "has_pyiceberg", "chosen"),
    [
        (None, True, True, Engine.SPARK),
        (None, False, True, Engine.PYICEBERG),
        (Engine.PYICEBERG, True, True, Engine.PYICEBERG),
        (Engine.SPARK, True, False, Engine.SPARK),
    ],
)
def test_the_runtime_comes_first(wanted: Engine | None, has_runtime: bool, has_pyiceberg: bool, chosen: Engine) -> None:
    """Unless PyIceberg is wanted, or there is no runtime."""
    assert choose_iceberg_engine("4.1.4", wanted, has_runtime, has_pyiceberg) is chosen


@pytest.mark.parametrize(
    ("version", "wanted", "advice"),
    [
        ("4.1.4", None, "iceberg-spark-runtime-4.1_2.13:1.12.0; or pip install 'skylarkmq"),
        ("4.0.5", Engine.SPARK, "spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"),
        ("4.3.0", Engine.SPARK, "no Iceberg runtime for Spark 4.3.0: use --engine pyiceberg"),
        ("4.3.0", None, "need PyIceberg: pip install 'skylarkmq[iceberg]'"),
        ("4.1.4", Engine.PYICEBERG, "PyIceberg is not installed"),
    ],
)
def test_a_missing_writer_is_refused_with_its_coordinates(version: str, wanted: Engine | None, advice: str) -> None:
    """The jar for this version of Spark, or the package."""
    with pytest.raises(Unavailable) as caught:
        choose_iceberg_engine(version, wanted, has_runtime=False, has_pyiceberg=False)
    assert advice in str(caught.value)


def test_delta_is_refused_with_its_coordinates() -> None:
    """Or with the formats and versions to use, if there is no Delta Lake for this version."""
    assert "spark.jars.packages=io.delta:delta-spark_4.1_2.13:4.4.0" in delta_advice("4.1.4")
    assert "no Delta Lake for Spark 4.3.0: write to Iceberg or Parquet, or use Spark" in delta_advice("4.3.0")


def test_a_session_starts_with_the_extensions_of_the_format_and_of_the_user() -> None:
    """A catalog of the user stays."""
    given = {EXTENSIONS: "a.B"}
    assert session_settings(TableFormat.PARQUET, given)[EXTENSIONS] == "a.B"
    assert session_settings(TableFormat.ICEBERG, given)[EXTENSIONS] == f"a.B,{ICEBERG_CLASS}"
    delta = session_settings(TableFormat.DELTA, {EXTENSIONS: DELTA_CLASS})
    assert (delta[EXTENSIONS], delta[SESSION_CATALOG]) == (DELTA_CLASS, DELTA_CATALOG_CLASS)
    assert session_settings(TableFormat.DELTA, {SESSION_CATALOG: "x.Y"})[SESSION_CATALOG] == "x.Y"
