"""The keys that UPDATE_BROKER_CONFIG (25) and UPDATE_NAMESRV_CONFIG (318) must not change.

RocketMQ rejects the keys of its `configBlackList` with NO_PERMISSION (16). Skylark does the same, with a longer default
list. By default those two requests need no credentials. A key that changes an address, a path, a name server, the size
of files or the protection of the daemon could open it to a network at its next start, or prevent the start.
"""

from typing import Final

ACCESS: Final = (
    "aclEnable", "authenticationEnabled", "authorizationEnabled", "authenticationWhitelist", "authorizationWhitelist",
    "initAuthenticationUser", "innerClientAuthenticationCredentials", "migrateAuthFromV1Enabled",
)  # fmt: skip
"""A request cannot turn access control off or change its secrets."""

ALWAYS: Final = (
    "brokerConfigPath", "rocketmqHome", "configBlackList", "configStorePath", "kvConfigPath",
    *ACCESS,
)  # fmt: skip
"""Rejected regardless of `configBlackList`."""

ADDRESSES: Final = (
    "bindAddress", "brokerIP1", "brokerIP2", "listenPort", "listenPortForSlave", "embeddedNamesrvPort",
    "consoleHost", "consolePort", "metricsPromExporterHost", "metricsPromExporterPort",
    "metricsGrpcExporterTarget", "metricsGrpcExporterHeader",
    "namesrvAddr", "fetchNamesrvAddrByAddressServer", "fetchNameSrvAddrByDnsLookup",
    "controllerAddr", "dLegerPeers",
)  # fmt: skip
REPLICATION: Final = (
    "brokerRole", "brokerId", "totalReplicas", "haListenPort", "haMasterAddress", "haAllowedNetworks",
    "haPeers", "haNodeId", "haStore", "haClusterSecret",
)  # fmt: skip
"""They open the port for slaves, decide which machines may copy the log, or make the broker copy another one's."""
PATHS: Final = (
    "storePathRootDir", "storePathCommitLog", "readOnlyCommitLogStorePaths", "storePathConsumeQueue",
    "aclConfigDir",
    "storePathIndex", "storePathAbortFile", "storePathCheckpoint", "storePathEpochFile", "messageStorePlugIn",
    "auditLog", "auditLogMaxBytes", "auditLogFiles",
)  # fmt: skip
FILE_SIZES: Final = (
    "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mappedFileSizeTimerLog", "maxHashSlotNum",
    "maxIndexNum", "mappedFileSizeConsumeQueueExt", "compactionMappedFileSize", "compactionCqMappedFileSize",
)  # fmt: skip

PROTECTION: Final = (
    "namesrvAuth", "accountsFile", "tlsAuthMapping", "adminAllowedNetworks", "strictSecretFiles",
    "consoleTls", "metricsAuth", "metricsTls",
)  # fmt: skip

DEFAULT: Final = ADDRESSES + REPLICATION + PATHS + FILE_SIZES + PROTECTION
"""The default of `configBlackList`."""
