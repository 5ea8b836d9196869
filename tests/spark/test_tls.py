"""Sink, ledger and source over TLS, against a broker that requires TLS and client certificates."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.harness.certificates import Certificates
from tests.harness.daemon import running
from tests.spark import lines
from tests.spark.scene import Written, stream

pytestmark = pytest.mark.spark


def test_rows_are_written_and_read_over_tls(spark: SparkSession, tmp_path: Path) -> None:
    """The query succeeds with the authority's file and a client certificate, and fails without the file."""
    made = Certificates(tmp_path)
    server, own = made.issue("server"), made.issue("own", password="geheim")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": server.cert,
        "tls.server.keyPath": server.key,
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": made.authority.cert,
        "tls.client.certPath": server.cert,  # the broker's certificate for the name server
        "tls.client.keyPath": server.key,
    }
    shown = {"tls.certPath": str(own.cert), "tls.keyPath": str(own.key), "tls.keyPassword": "geheim"}
    trusted = shown | {"tls.trustCertPath": str(made.authority.cert)}
    lines.put_lines(tmp_path, "a", 500)
    with running(directory=tmp_path, settings=settings) as broker:
        options = {"nameServer": broker.namesrv, "topic": "Sealed", "retryTimeoutMs": "0ms"}
        lines.wait(lines.stream(spark, tmp_path, **options, **trusted, skipCommittedBatches="true"))
        written = Written(spark, tmp_path / "query")
        written.drain(stream(spark, broker.namesrv, subscribe="Sealed", **trusted))
        assert written.bodies() == Counter(b"a %d" % n for n in range(500))
        lines.put_lines(tmp_path, "b", 1)
        with pytest.raises(StreamingQueryException, match=r"(?s)certificate verify failed") as failed:
            lines.wait(lines.stream(spark, tmp_path, **options, **shown))
        assert "geheim" not in str(failed.value)
