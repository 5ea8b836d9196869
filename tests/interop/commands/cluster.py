"""clusterList, and the commands about brokers."""

from tests.interop.commands import NUMBER, TIME, Case

AFTER_COLON = (r": .*", ": VALUE")
SENT = (r"rt=\d+ms|msgId=\w+|offsetMsgId=\w+|queueId=\d+|queueOffset=\d+", "FIELD")

CASES = [
    Case("clusterList", masks=[(r"(?<=V\d_\d_\d).*", " RATES")]),
    Case("clusterList", "-c {cluster}", masks=[(r"(?<=V\d_\d_\d).*", " RATES")]),
    Case("clusterList", "-m", masks=[(r"(?<={name}).*", " TOTALS")]),
    Case("brokerStatus", "-b {broker}", masks=[AFTER_COLON]),
    Case("brokerStatus", "-c {cluster}", masks=[AFTER_COLON]),
    Case("brokerConsumeStats", "-b {broker}"),
    Case("brokerConsumeStats", "-b {broker} -l 1000000"),
    Case("brokerConsumeStats", "-b {broker} -o true -t 10000"),
    Case("getBrokerConfig", "-b {broker}", unordered=True, masks=[NUMBER]),
    Case("getBrokerConfig", "-c {cluster}", unordered=True, masks=[NUMBER]),
    Case("updateBrokerConfig", "-b {broker} -k flushIntervalCommitLog -v 600"),
    Case("updateBrokerConfig", "-c {cluster} -k flushIntervalCommitLog -v 500"),
    Case("updateBrokerConfig", "-c {cluster} -k flushIntervalCommitLog -v 500 -a true"),
    Case("updateBrokerConfig", "-b {broker} -k brokerPermission -v 9", fails=True),
    Case("sendMsgStatus", "-b {name} -c 2 -s 20", masks=[SENT]),
    Case("cleanExpiredCQ"),
    Case("cleanExpiredCQ", "-b {broker}"),
    Case("cleanUnusedTopic", "-c {cluster}"),
    Case("cleanUnusedTopic", "-b {broker}"),
    Case("deleteExpiredCommitLog", "-b {broker}"),
    Case("haStatus", "-b {broker}", masks=[NUMBER, TIME]),
    Case("haStatus", "-c {cluster}", masks=[NUMBER, TIME]),
    Case("resetMasterFlushOffset", "-b {broker} -o 0"),
]
