"""The exporter's `rocketmq_brokeruntime_` metrics, and the runtime information that each is read from.

The exporter requests a broker's runtime information (GET_BROKER_RUNTIME_INFO, 28) and parses the texts to numbers.
These metrics parse the same texts in the same way. Source: docs/reference/wire.md, "Runtime information".
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

PREFIX: Final = "rocketmq_brokeruntime_"
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SPREAD: Final = "putMessageDistributeTime"
_CAPACITY: Final = "commitLogDirCapacity"
_GIB_OF: Final = {"B": 2.0**-30, "KiB": 2.0**-20, "MiB": 2.0**-10, "GiB": 1.0, "TiB": 2.0**10, "PiB": 2.0**20}


class RuntimeName(NamedTuple):
    """A metric, the key of its text, and the index of its number in the text, counted after the text `of` if there is
    one."""

    suffix: str
    key: str
    at: int = 0
    of: str = ""

    @property
    def metric(self) -> str:
        """Return the full name."""
        return PREFIX + self.suffix

    def value(self, table: Mapping[str, str]) -> float | None:
        """Return the number; None if there is no such key. A text without numbers, such as `null`, counts as 0."""
        text = table.get(self.key)
        if text is None:
            return None
        if self.key == _CAPACITY:
            return gib_in(text, self.of)
        if self.of:
            text = text.partition(self.of)[2]
        numbers = _NUMBER.findall(text)
        return float(numbers[self.at]) if self.at < len(numbers) else 0.0


def gib_in(text: str, name: str) -> float:
    """Return the GiB after `name` in a text such as `Total : 252.0 GiB, Free : 72.5 GiB.`; 0 if there are none."""
    found = re.search(rf"{name} : ([\d.]+) (\w+)", text)
    return float(found[1]) * _GIB_OF.get(found[2], 0.0) if found else 0.0


def _rates(key: str, name: str) -> tuple[RuntimeName, ...]:
    return tuple(RuntimeName(f"{name}_tps{window_s}", key, at) for at, window_s in enumerate((10, 60, 600)))


SPREAD_NAMES: Final = {
    "0ms": "[<=0ms]:", "0to10ms": "[0~10ms]:", "10to50ms": "[10~50ms]:", "50to100ms": "[50~100ms]:",
    "100to200ms": "[100~200ms]:", "200to500ms": "[200~500ms]:", "500to1s": "[500ms~1s]:", "1to2s": "[1~2s]:",
    "2to3s": "[2~3s]:", "3to4s": "[3~4s]:", "4to5s": "[4~5s]:", "5to10s": "[5~10s]:", "10stomore": "[10s~]:",
}  # fmt: skip

RUNTIME_NAMES: Final = (
    *(RuntimeName(f"pmdt_{name}", _SPREAD, of=of) for name, of in SPREAD_NAMES.items()),
    *_rates("putTps", "put"),
    *_rates("getTotalTps", "gettotal"),
    *_rates("getFoundTps", "getfound"),
    *_rates("getMissTps", "getmiss"),
    *_rates("getTransferredTps", "gettransfered"),
    RuntimeName("send_threadpoolqueue_headwait_timemills", "sendThreadPoolQueueHeadWaitTimeMills"),
    RuntimeName("pull_threadpoolqueue_headwait_timemills", "pullThreadPoolQueueHeadWaitTimeMills"),
    RuntimeName("query_threadpoolqueue_headwait_timemills", "queryThreadPoolQueueHeadWaitTimeMills"),
    RuntimeName("send_threadpool_queue_size", "sendThreadPoolQueueSize"),
    RuntimeName("send_threadpoolqueue_capacity", "sendThreadPoolQueueCapacity"),
    RuntimeName("pull_threadpoolqueue_size", "pullThreadPoolQueueSize"),
    RuntimeName("pull_threadpoolqueue_capacity", "pullThreadPoolQueueCapacity"),
    RuntimeName("query_threadpoolqueue_size", "queryThreadPoolQueueSize"),
    RuntimeName("query_threadpool_queue_capacity", "queryThreadPoolQueueCapacity"),
    RuntimeName("commitlog_disk_ratio", "commitLogDiskRatio"),
    RuntimeName("consumequeue_disk_ratio", "consumeQueueDiskRatio"),
    RuntimeName("commitlogdir_capacity_free", _CAPACITY, of="Free"),
    RuntimeName("commitlogdir_capacity_total", _CAPACITY, of="Total"),
    RuntimeName("commitlog_maxoffset", "commitLogMaxOffset"),
    RuntimeName("commitlog_minoffset", "commitLogMinOffset"),
    RuntimeName("msg_put_total_today_now", "msgPutTotalTodayNow"),
    RuntimeName("msg_gettotal_today_now", "msgGetTotalTodayNow"),
    RuntimeName("msg_puttotal_todaymorning", "msgPutTotalTodayMorning"),
    RuntimeName("msg_gettotal_todaymorning", "msgGetTotalTodayMorning"),
    RuntimeName("msg_puttotal_yesterdaymorning", "msgPutTotalYesterdayMorning"),
    RuntimeName("msg_gettotal_yesterdaymorning", "msgGetTotalYesterdayMorning"),
    RuntimeName("dispatch_behind_bytes", "dispatchBehindBytes"),
    RuntimeName("dispatch_maxbuffer", "dispatchMaxBuffer"),
    RuntimeName("put_message_size_total", "putMessageSizeTotal"),
    RuntimeName("put_message_average_size", "putMessageAverageSize"),
    RuntimeName("put_latency_99", "putLatency99"),
    RuntimeName("put_latency_999", "putLatency999"),
    RuntimeName("putmessage_times_total", "putMessageTimesTotal"),
    RuntimeName("putmessage_entire_time_max", "putMessageEntireTimeMax"),
    RuntimeName("getmessage_entire_time_max", "getMessageEntireTimeMax"),
    RuntimeName("earliest_message_timestamp", "earliestMessageTimeStamp"),
    RuntimeName("remain_howmanydata_toflush", "remainHowManyDataToFlush"),
    RuntimeName("remain_transientstore_buffer_numbs", "remainTransientStoreBufferNumbs"),
    RuntimeName("pagecache_lock_time_mills", "pageCacheLockTimeMills"),
    RuntimeName("start_accept_sendrequest_time", "startAcceptSendRequestTimeStamp"),
)
