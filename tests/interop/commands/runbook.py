"""A runbook of 60 lines, as operators write them for RocketMQ's tool: test_mqadmin_runbook.py runs it with both tools.

Each tool has a broker of its own, and runs all lines in their order: a line may depend on those before it. `$broker`,
`$namesrv`, `$cluster`, `$member` (client id of the member of group `billing`), `$offset_id` and `$unique_id` (of the
first message) and `$home` (its directory) are those of that broker. Lines without `-n` use NAMESRV_ADDR. Topic `Orders`
has 4 queues with 2 messages each, which the member has consumed; `shop` is the group of their producer.
"""

import shlex
from collections.abc import Mapping, Sequence
from string import Template
from typing import Final, NamedTuple

from tests.interop.commands import NUMBER, Case


class Line(NamedTuple):
    """One line of the runbook. `shows`: a regular expression that our output matches; for a failure, our stderr.

    `code`: our exit code. If it is not 0, RocketMQ's tool prints a stack trace. `masks` and `unordered`: as in Case.
    `requires_5`: RocketMQ's tool 5.3.3 fails against 4.9; ours does not.
    """

    text: str
    shows: str
    masks: Sequence[tuple[str, str]] = ()
    unordered: bool = False
    code: int = 0
    requires_5: bool = False

    def __str__(self) -> str:
        return self.text

    def arguments(self, names: Mapping[str, str]) -> list[str]:
        """Return the command and its arguments, with the names of a broker."""
        tool, *arguments = shlex.split(Template(self.text).substitute(names))
        assert tool == "mqadmin"
        return arguments

    @property
    def case(self) -> Case:
        """Return the rules for the comparison."""
        return Case(self.text, masks=[*self.masks, *OF_A_BROKER], unordered=self.unordered)


OF_A_BROKER: Final = [
    (r"\b1\d{12}\b", "MS"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"[\d.]+@\d+#\d+", "CLIENT"),
    (r"(storeSize|bodyCRC|commitLogOffset|CommitLog Offset)[=:] *\d+", "FIELD"),
    (r"(?<=UNIQ_KEY=)\w+", "ID"),
]
"""Masks of what differs between two brokers in the same state."""
RATES: Final = (r"(?<=V\d_\d_\d).*", " RATES")
PER_SECOND: Final = (r"\s+\d+\.\d\d\s.*", " RATES")
TPS: Final = (r"(?<=TPS: )\d+\.\d+", "RATE")
VALUES: Final = (r": .*", ": VALUE")
SENT: Final = (r"(?<=broker-a) +\d +(?=SEND_OK)|(?<=SEND_OK).*", " ")
FIELDS: Final = (r"rt=\d+ms|msgId=\w+|offsetMsgId=\w+|queueId=\d+|queueOffset=\d+", "FIELD")
STATE: Final = (r"trackType=(CONSUMED|UNKNOWN)", "STATE")
MEAN: Final = [(r"(?<=true) +\d+", ""), (r"(?<=RT: ).*", "MS")]
UNITS: Final = [(r"physicOffset=\d+", "AT"), (r"physicSize=\d+", "SIZE")]
TOTALS: Final = (r"(?<=broker-a).*", " TOTALS")
ANY_VALUE: Final = (r"=.*", "")
HEARD: Final = (r"(?<=lastUpdateTimestamp=)\d+", "MS")

OVERVIEW: Final = [
    Line("mqadmin clusterList -n $namesrv", r"DefaultCluster +broker-a +0 +127\.0\.0\.1", masks=[RATES]),
    Line("mqadmin clusterList -m -n $namesrv", r"broker-a +\d+ +\d+ +\d+ +\d+", masks=[TOTALS]),
    Line("mqadmin brokerStatus -n $namesrv -b $broker", "commitLogDiskRatio +: ", masks=[VALUES]),
    Line("mqadmin brokerStatus -n $namesrv -c $cluster", "putTps +: ", masks=[VALUES]),
    Line(
        "mqadmin getBrokerConfig -n $namesrv -b $broker",
        "brokerName .*= +broker-a",
        masks=[ANY_VALUE],
        unordered=True,
    ),
    Line("mqadmin getNamesrvConfig -n $namesrv", "orderMessageEnable", masks=[ANY_VALUE], unordered=True),
    Line("mqadmin topicList", "^Orders$", unordered=True),
    Line("mqadmin topicList -c -n $namesrv", "DefaultCluster +Orders +billing", unordered=True),
    Line("mqadmin consumerProgress", r"billing +1 ", masks=[(r"(?<=CLUSTERING)\s+\d+", " RATE")]),
    Line("mqadmin statsAll -t Orders", "Orders +billing", masks=[PER_SECOND]),
]
TOPICS: Final = [
    Line("mqadmin updateTopic -n $namesrv -c $cluster -t Shipments -r 8 -w 8 -p 6", "create topic to .* success"),
    Line("mqadmin updateTopic -n $namesrv -b $broker -t Ledger -r 2 -w 2", "topicName=Ledger, readQueueNums=2"),
    Line("mqadmin topicRoute -n $namesrv -t Shipments", '"readQueueNums":8'),
    Line("mqadmin topicRoute -n $namesrv -t Ledger -l", r"^DefaultCluster +broker-a [\s\S]* 2 +2 *$"),
    Line("mqadmin topicStatus -n $namesrv -t Orders", r"broker-a +0 +0 +2", requires_5=True),
    Line("mqadmin topicClusterList -n $namesrv -t Orders", "^DefaultCluster$"),
    Line("mqadmin updateTopicPerm -n $namesrv -c $cluster -t Shipments -p 4", "update topic perm from 6 to 4"),
    Line("mqadmin updateTopicPerm -n $namesrv -b $broker -t Shipments -p 6", "update topic perm from 4 to 6"),
    Line("mqadmin updateTopic -n $namesrv -c $cluster -t Shipments -r 4 -w 4", "writeQueueNums=4"),
    Line("mqadmin allocateMQ -n $namesrv -t Orders -i 10.0.0.1,10.0.0.2", "10.0.0.2"),
    Line("mqadmin updateOrderConf -n $namesrv -t Orders -m put -v broker-a:4", "broker-a:4"),
    Line("mqadmin updateOrderConf -n $namesrv -t Orders -m get", "broker-a:4"),
    Line("mqadmin updateOrderConf -n $namesrv -t Orders -m delete", "Orders"),
    Line("mqadmin updateKvConfig -n $namesrv -s RUNBOOK -k owner -v payments", "success"),
    Line("mqadmin deleteKvConfig -n $namesrv -s RUNBOOK -k owner", "success"),
    Line("mqadmin updateNamesrvConfig -n $namesrv -k orderMessageEnable -v true", "success"),
]
MESSAGES: Final = [
    Line("mqadmin sendMessage -t Shipments -p hello -k ship-1 -c express", "SEND_OK", masks=[SENT]),
    Line("mqadmin sendMessage -t Ledger -p 'two words' -b broker-a -i 1", "SEND_OK", masks=[SENT]),
    Line(
        "mqadmin checkMsgSendRT -t Ledger -a 3 -s 10",
        "Avg RT",
        masks=MEAN,
    ),
    Line("mqadmin sendMsgStatus -b broker-a -c 2 -s 20", "SEND_OK", masks=[FIELDS]),
    Line("mqadmin queryMsgByKey -t Orders -k key-3", r"^[0-9A-F]{32} +3 +0$"),
    Line("mqadmin queryMsgById -t Orders -i $offset_id", r"Keys: +\[key-0\]", masks=[STATE]),
    Line(
        "mqadmin queryMsgById -t Orders -i $unique_id",
        r"trackType=CONSUMED",
        masks=[STATE],
    ),
    Line(
        "mqadmin queryMsgByUniqueKey -t Orders -i $unique_id",
        r"Tags: +\[a\]",
        masks=[STATE],
    ),
    Line("mqadmin queryMsgByOffset -t Orders -b broker-a -i 0 -o 1", r"Keys: +\[key-4\]", masks=[STATE]),
    Line("mqadmin printMsg -t Orders", "BODY: 7"),
    Line("mqadmin printMsg -t Orders -s a -d false", "NOT PRINT BODY"),
    Line("mqadmin printMsgByQueue -t Orders -a broker-a -i 1 -p true -d true -f true", "Tag: b +Count: 2"),
    Line("mqadmin consumeMessage -t Orders -c 3", "BODY: "),
    Line("mqadmin consumeMessage -t Orders -b broker-a -i 2 -o 1", "BODY: 6"),
    Line(
        "mqadmin queryCq -t Orders -q 0 -i 0 -c 2",
        "max: 2, min: 0",
        masks=UNITS,
    ),
]
GROUPS: Final = [
    Line("mqadmin updateSubGroup -c $cluster -g audit", "create subscription group to .* success"),
    Line("mqadmin updateSubGroup -b $broker -g audit -s true -m true -r 5 -q 2", "audit"),
    Line("mqadmin getConsumerConfig -g audit", "retryMaxTimes.*5"),
    Line("mqadmin consumerConnection -g billing", "MessageModel: CLUSTERING"),
    Line("mqadmin producerConnection -g shop -t Orders", "127.0.0.1"),
    Line("mqadmin producer -b $broker", "shop", masks=[HEARD], unordered=True),
    Line("mqadmin consumerProgress -g billing", "Diff Total: 0", masks=[TPS], requires_5=True),
    Line(
        "mqadmin consumerProgress -g billing -t Orders -s true",
        "Orders +broker-a +3 +2 +2 ",
        masks=[TPS],
        requires_5=True,
    ),
    Line("mqadmin consumerStatus -g billing -i $member", "#Consumer Subscription#", masks=[NUMBER]),
    Line("mqadmin brokerConsumeStats -b $broker", "Orders +billing +broker-a"),
    Line("mqadmin cloneGroupOffset -s billing -d audit -t Orders", "success", requires_5=True),
    Line("mqadmin resetOffsetByTime -g billing -t Orders -s 0 -b $broker -q 1 -o 1", "reset consumer offset to 1"),
    Line("mqadmin skipAccumulatedMessage -g billing -t Orders", "Orders|broker-a"),
]
MAINTENANCE: Final = [
    Line("mqadmin updateBrokerConfig -n $namesrv -b $broker -k flushIntervalCommitLog -v 1000", "success"),
    Line("mqadmin exportMetadata -n $namesrv -c $cluster -f $home/files", "metadata.json"),
    Line("mqadmin deleteSubGroup -n $namesrv -c $cluster -g audit -r true", "success"),
    Line("mqadmin deleteTopic -n $namesrv -c $cluster -t Shipments", "delete topic .*Shipments"),
    Line("mqadmin topicRoute -t Shipments", "no name server .* has topic Shipments", code=2),
    Line("mqadmin consumerConnection -n $namesrv -g audit", "mqadmin: ", code=2),
]
RUNBOOK: Final = [*OVERVIEW, *TOPICS, *MESSAGES, *GROUPS, *MAINTENANCE]
