"""Commands about name servers."""

from tests.interop.commands import NUMBER, Case

PUT_ORDER = "updateOrderConf -t {topic} -m put -v {name}:4"

CASES = [
    Case("getNamesrvConfig", unordered=True, masks=[NUMBER]),
    Case("getNamesrvConfig", "-n {namesrv}", unordered=True, masks=[NUMBER]),
    Case("updateNamesrvConfig", "-k orderMessageEnable -v true"),
    Case("updateNamesrvConfig", "-n {namesrv} -k orderMessageEnable -v false"),
    Case("updateKvConfig", "-s NAMES -k key -v value"),
    Case("deleteKvConfig", "-s NAMES -k key", before=["updateKvConfig -s NAMES -k key -v value"]),
    Case("deleteKvConfig", "-s NAMES -k missing"),
    Case("wipeWritePerm", "-b {name}", before=["addWritePerm -b {name}"]),
    Case("wipeWritePerm", "-b missing"),
    Case("addWritePerm", "-b {name}", before=["wipeWritePerm -b {name}"]),
    Case("addWritePerm", "-b {name}", before=["addWritePerm -b {name}"]),
    Case("updateOrderConf", "-t {topic} -m put -v {name}:4"),
    Case("updateOrderConf", "-t {topic} -m get", before=[PUT_ORDER]),
    Case("updateOrderConf", "-t {topic} -m delete", before=[PUT_ORDER]),
    Case("updateOrderConf", "-t {topic} -m get", before=["updateOrderConf -t {topic} -m delete"], fails=True),
    Case("updateOrderConf", "-t {topic} -m put", fails=True),
]
