"""Which keys UPDATE_BROKER_CONFIG (25) and UPDATE_NAMESRV_CONFIG (318) refuse to change.

RocketMQ refuses the keys of its `configBlackList` with NO_PERMISSION (16). So does a daemon here, and its default list
is longer. Those two requests need no credentials. A key that moves an address, a path or a name server, or that changes
the size of files, would open the daemon to a network at its next start, or keep it from starting.
"""

from typing import Final

ALWAYS: Final = ("brokerConfigPath", "rocketmqHome", "configBlackList", "configStorePath", "kvConfigPath")
"""Refused whatever `configBlackList` says."""

ADDRESSES: Final = (
    *("bindAddress", "brokerIP1", "brokerIP2", "listenPort", "listenPortForSlave", "embeddedNamesrvPort"),
    *("metricsPromExporterHost", "metricsPromExporterPort", "metricsGrpcExporterTarget", "metricsGrpcExporterHeader"),
    *("namesrvAddr", "fetchNamesrvAddrByAddressServer", "fetchNameSrvAddrByDnsLookup"),
    *("controllerAddr", "dLegerPeers", "haListenPort", "haMasterAddress"),
)
PATHS: Final = (
    *("storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathConsumeQueue"),
    *("storePathIndex", "storePathAbortFile", "storePathCheckpoint", "storePathEpochFile", "messageStorePlugIn"),
)
FILE_SIZES: Final = (
    *("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeTimerLog", "maxHashSlotNum"),
    *("maxIndexNum", "mappedFileSizeConsumeQueueExt", "compactionMappedFileSize", "compactionCqMappedFileSize"),
)

DEFAULT: Final = ADDRESSES + PATHS + FILE_SIZES
"""What `configBlackList` is unless it is set."""
