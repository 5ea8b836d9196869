"""Commands about messages: queries, prints, sends; and statsAll.

`{unique_id}` and `{offset_id}` are those of the first message, which is the first in queue 0.
"""

from tests.interop.commands import Case

SENT = (r"(?<=broker-a) +\d +(?=SEND_OK)|(?<=SEND_OK).*", " ")
RATES = (r"(?<=billing).*", " RATES")
SEND_TIMES = [(r"(?<=true) +\d+", ""), (r"(?<=RT: ).*", "MS")]
SENT_TOPIC = "updateTopic -c {cluster} -t Sent"

CASES = [
    Case("queryMsgById", "-t {topic} -i {offset_id}"),
    Case("queryMsgById", "-t {topic} -i {unique_id}"),
    Case("queryMsgById", "-t {topic} -i {unique_id},{offset_id} -f UTF-8"),
    Case("queryMsgById", "-t {topic} -i {unique_id} -g {group} -d {member}", masks=[(r"Mills=\d+", "MS")]),
    Case("queryMsgById", "-t {topic} -i {unique_id} -g {group} -d missing", fails=True),
    Case("queryMsgById", "-t {topic} -i {unique_id} -s false"),
    Case("queryMsgById", "-t {topic} -i 0123456789ABCDEF0123456789ABCDEF", fails=True),
    Case("queryMsgByUniqueKey", "-t {topic} -i {unique_id}"),
    Case("queryMsgByUniqueKey", "-t {topic} -i {unique_id} -a"),
    Case("queryMsgByUniqueKey", "-t {topic} -i {unique_id} -c {cluster}"),
    Case("queryMsgByUniqueKey", "-t {topic} -i {unique_id} -g {group} -d {member}", masks=[(r"Mills=\d+", "MS")]),
    Case("queryMsgByKey", "-t {topic} -k key-3"),
    Case("queryMsgByKey", "-t {topic} -k key-3 -c {cluster} -m 1 -b 0 -e 9999999999999"),
    Case("queryMsgByKey", "-t {topic} -k missing", fails=True),
    Case("queryMsgByOffset", "-t {topic} -b {name} -i 0 -o 1"),
    Case("queryMsgByOffset", "-t {topic} -b {name} -i 0 -o 1 -f UTF-8"),
    Case("queryMsgTraceById", "-i missing", fails=True),
    Case("printMsg", "-t {topic}"),
    Case("printMsg", "-t {topic} -s a -d false"),
    Case("printMsg", "-t {topic} -b 0 -e 1"),
    Case("printMsg", "-t Unknown", fails=True),
    Case("printMsgByQueue", "-t {topic} -a {name} -i 1"),
    Case("printMsgByQueue", "-t {topic} -a {name} -i 1 -p true -d true -f true"),
    Case("printMsgByQueue", "-t {topic} -a {name} -i 1 -p true -s b -b 2024-05-01#13:00:00:000"),
    Case("consumeMessage", "-t {topic}"),
    Case("consumeMessage", "-t {topic} -c 3"),
    Case("consumeMessage", "-t {topic} -b {name} -i 1 -o 1"),
    Case("consumeMessage", "-t {topic} -b {name} -i 1 -o 99"),
    Case("consumeMessage", "-t {topic} -b {name} -i 1 -s 2024-05-01#13:00:00:000 -e 1714700000000"),
    Case("sendMessage", "-t Sent -p hello -k key -c tag", before=[SENT_TOPIC], masks=[SENT]),
    Case("sendMessage", "-t Sent -p hello -b {name} -i 3", before=[SENT_TOPIC], masks=[SENT]),
    Case("checkMsgSendRT", "-t Sent -a 3 -s 10", before=[SENT_TOPIC], masks=SEND_TIMES),
    Case("queryCq", "-t {topic} -q 0 -i 0 -c 2"),
    Case("queryCq", "-t {topic} -q 0 -i 1 -b {broker} -g {group}", masks=[(r'(?<=subVersion":)\d+', "N")]),
    Case("statsAll", "-t {topic}", masks=[RATES]),
]
