"""Commands about groups and their clients, and about the offsets of groups."""

from typing import Final

from tests.interop.commands import NUMBER, Case

POLICY: Final = '{{"type":"EXPONENTIAL","exponentialRetryPolicy":{{"initial":5000,"max":7200000,"multiplier":2}}}}'
RATES: Final = ((r"(?<=TPS: )\d+\.\d+", "RATE"),)
GROUP_RATES: Final = ((r"(?<=CLUSTERING)\s+\d+", " RATE"),)
FILES: Final = ((r"\b\d{13}(?=/)", "MS"),)
HEARD: Final = ((r"(?<=lastUpdateTimestamp=)\d+", "MS"),)
NOW: Final = ((r"(?<=timestamp\(long\)\[)\d+", "MS"),)
IDLE: Final = "updateSubGroup -c {cluster} -g idle"
AT_ONE: Final = [IDLE, *(f"resetOffsetByTime -g idle -t {{topic}} -s 0 -b {{broker}} -q {n} -o 1" for n in range(4))]
"""A group without members, at offset 1 of each queue: a broker of 4.9 refuses its reset, and sets no offset itself."""
FULL: Final = "-b {broker} -g full -s false -m true -d true -o true -q 2 -r 5 -i 1 -w 2 -a false"
CLONE: Final = "-s {group} -d idle -t {topic}"
CLONED: Final = [IDLE, f"cloneGroupOffset {CLONE}"]
CASES: Final = [
    Case("updateSubGroup", "-c {cluster} -g made"),
    Case("updateSubGroup", FULL),
    Case("updateSubGroup", f"-b {{broker}} -g policy -p '{POLICY}'"),
    Case("updateSubGroupList", "-b {broker} -f {groups_file}", requires_5=True),
    Case("getConsumerConfig", "-g full", before=[f"updateSubGroup {FULL}"]),
    Case("getConsumerConfig", "-g tried", before=["updateSubGroup -b {broker} -g tried -r 3"]),
    Case("getConsumerConfig", "-g {group}"),
    Case("deleteSubGroup", "-b {broker} -g doomed -r true", before=["updateSubGroup -b {broker} -g doomed"]),
    Case("deleteSubGroup", "-c {cluster} -g doomed", before=["updateSubGroup -c {cluster} -g doomed"]),
    Case("consumerConnection", "-g {group}"),
    Case("consumerConnection", "-g {group} -b {broker}"),
    Case("consumerConnection", "-g Unknown", fails=True),
    Case("producerConnection", "-g shop -t {topic}"),
    Case("producerConnection", "-g Unknown -t {topic}", fails=True),
    Case("producer", "-b {broker}", masks=HEARD, unordered=True),
    Case("consumerStatus", "-g {group}", masks=FILES),
    Case("consumerStatus", "-g {group} -i {member}", masks=[NUMBER]),
    Case("consumerStatus", "-g {group} -i Unknown", fails=True),
    Case("consumerProgress", "-g {group}", masks=RATES, requires_5=True),
    Case("consumerProgress", "-g {group} -t {topic}", masks=RATES, requires_5=True),
    Case("consumerProgress", "-g {group} -s true", masks=RATES, requires_5=True),
    Case("consumerProgress", "-g Unknown", fails=True),
    Case("consumerProgress", masks=GROUP_RATES),
    Case("resetOffsetByTime", "-g {group} -t {topic} -s 0"),
    Case("resetOffsetByTime", "-g {group} -t {topic} -s now", masks=NOW),
    Case("resetOffsetByTime", "-g {group} -t {topic} -s 2020-01-01#00:00:00:000"),
    Case("resetOffsetByTime", "-g {group} -t {topic} -s 0 -b {broker} -q 1 -o 1"),
    Case("resetOffsetByTime", "-g {group} -t {topic} -s now -b {broker} -q 1", masks=NOW),
    Case("resetOffsetByTime", "-g {group} -t Unknown -s 0", fails=True),
    Case("skipAccumulatedMessage", "-g {group} -t {topic}"),
    Case("resetOffsetByTime", "-g idle -t {topic} -s now", before=AT_ONE, masks=NOW),
    Case("resetOffsetByTime", "-g idle -t {topic} -s 0 -f false", before=AT_ONE),
    Case("skipAccumulatedMessage", "-g idle -t {topic} -f true", before=AT_ONE),
    Case("skipAccumulatedMessage", "-g {group} -t Unknown", fails=True),
    Case("cloneGroupOffset", CLONE, before=[IDLE], requires_5=True),
    Case(
        "consumerProgress",
        "-g idle -t {topic}",
        before=CLONED,
        masks=RATES,
        requires_5=True,
    ),
    Case("cloneGroupOffset", "-s Unknown -d idle -t {topic}", fails=True),
]
