"""Where this broker differs from RocketMQ on purpose: the last sections of docs/reference/compatibility.md."""

from typing import Final

USERS_AND_POLICIES: Final = """
## Access control of RocketMQ 5.3

Codes, remarks and the order of checks are RocketMQ's. The differences:

- RocketMQ 5.3.3 permits requests whose headers name no resource to every user. This broker needs a right for them:
  Create on the topics or groups in the body of 18, 200 and 225; List on all topics or groups for 21 and 201; Update on
  the cluster for 25, 306, 316 and 329; Get on the cluster for 26, 28, 43, 45 and 305; Sub on the group for 46.
- LITE_PULL_MESSAGE (361) needs the rights of PULL_MESSAGE (11); RocketMQ 5.3.3 checks none.
- A pull (11, 361) or offset (14, 15) of a retry topic also needs the group of that topic, so that one group does not
  read the retries of another; RocketMQ 5.3.3 checks only the consumer's group.
- A heartbeat (34) or lock (41, 42) that names a retry topic also needs the group of that topic; RocketMQ 5.3.3 does not
  check retry topics there. Official clients name only the retry topic of their own group.
- A heartbeat makes a client a producer of any group, as in RocketMQ. But transaction checks (39), which contain the
  half message, go only to producers whose account has Pub on its topic: the user of their last heartbeat. RocketMQ
  5.3.3 sends them to every producer of the group. A producer with unsigned heartbeats (34 in
  `authenticationWhitelist`) gets no checks; with 34 in `authorizationWhitelist` each producer gets all of them.
- A send to a retry topic also needs the group of that topic; RocketMQ 5.3.3 checks only the producer's group. A reply
  (324, 325) to a topic other than the reply topic is checked as a send; RocketMQ 5.3.3 checks none, and stores it.
- CONSUMER_SEND_MSG_BACK (36), END_TRANSACTION (37), VIEW_MESSAGE_BY_ID (33), CONSUME_MESSAGE_DIRECTLY (309) and
  RESUME_CHECK_HALF_MESSAGE (323) also need the right to the topic of the stored message; otherwise it counts as absent.
  RocketMQ 5.3.3 checks only the topic or group in the request.
- QUERY_MESSAGE (12) returns only messages of the topic and key in the request. RocketMQ compares 32 bits of a hash, and
  may return messages of other topics.
- RESUME_CHECK_HALF_MESSAGE (323) without a topic, as 4.9's mqadmin sends it, needs Update on all topics; RocketMQ 5.3.3
  checks none.
- A code that no broker serves is answered with 3 before authentication.
- Of several entries that match, the most specific one decides, as documented. RocketMQ 5.3.3 prefers shorter prefixes,
  and otherwise the result depends on the order of entries; its successor corrects this (RocketMQ issue 9539).
- Addresses of peers are compared as addresses, not as texts. Source addresses cannot be host names.
- A code in `authenticationWhitelist` is authorized for the user of the signature. RocketMQ 5.3.3 uses the name in the
  request, even without a signature, and lets requests about super users pass without a name.
- `authorizationEnabled` without `authenticationEnabled` stops the start: any name would be accepted without a
  signature.
- AUTH_GET_USER (3004) and AUTH_LIST_USER (3005) return passwords, as RocketMQ does, because `copyUser` needs them; but
  to super users only.
- Requests of super users are not checked for readable resources; they get the errors of the request itself.
- The keys of providers, strategies and caches are ignored. Users and policies are in `users.json` and `acls.json`
  (RocketMQ: RocksDB); `copyUser` and `copyAcl` move them in both directions.
- `migrateAuthFromV1Enabled` turns an unknown permission into Deny, as 4.9 does; RocketMQ 5.3.3 turns it into Allow.
- Limits: 10,000 users, names of 255 characters, passwords of 1,024, 1,000 entries of a user.
"""

PROTECTION: Final = """\

## Networks and name servers

RocketMQ accepts changes from every address, and its name servers check nothing. The differences here:

- Requests that change the cluster, such as the requests of `mqadmin updateTopic` and `updateBrokerConfig`, are refused
  (16) from outside `adminAllowedNetworks` without a signature or a client certificate
  ([behaviour.md](behaviour.md#networks-of-administrators)). Registrations of brokers are not among them.
- With `namesrvAuth=true` a name server accepts registrations of brokers, key-values and settings from accounts only
  ([behaviour.md](behaviour.md#accounts)). A broker of RocketMQ 5.3 registers with
  `innerClientAuthenticationCredentials`, which needs `authenticationMetadataProvider` there. A broker of RocketMQ 4.9
  cannot sign its requests; its client certificate can be an account instead.
"""

REPLICATION: Final = """\

## Masters and slaves

This broker can be a slave of RocketMQ 4.9.7 and 5.3.3, and a master of their slaves, with equal logs and queues
(`tests/interop/test_replica.py`, `tests/interop/test_java_slaves.py`; 100,000 messages and 10 kills of each side by
command: [benchmarks](../benchmarks/broker.md#replication-with-brokers-of-rocketmq)). It differs from a slave of
RocketMQ ([wire.md](wire.md#slaves)):

- A committed offset of a slave does not go back. RocketMQ overwrites it with its master's offset every 10 s or 60 s,
  even with a smaller one. So a master that returns after an outage undoes the commits that consumers made to its slave
  meanwhile, and consumers get messages again (RocketMQ issue 1094). Offsets that an operator resets on the master are
  followed.
- Tables of the master (topics, groups, offsets, progress of delays and timers) are applied once the log of the slave
  has reached the end that the master's log had then. RocketMQ applies them at once. So a slave of RocketMQ that
  becomes the master may skip messages that it has not copied.
- A slave without a log gets the whole log of a master of RocketMQ. A slave of RocketMQ gets only the master's newest
  file.
- A slave whose log ends outside its master's log logs the next step. A slave of RocketMQ waits forever (RocketMQ issue
  3388).
- With SYNC_FLUSH a slave reports the bytes on its disk; RocketMQ reports the written bytes.
- Sends to a slave get SERVICE_NOT_AVAILABLE (14), as from 4.9; 5.3.3 responds SYSTEM_BUSY (2).

It differs from a master of RocketMQ ([wire.md](wire.md#classic-replication)):

- The port for slaves is opened only with `haListenPort`, `totalReplicas` above 1 or `brokerRole=SYNC_MASTER`, and only
  addresses in `haAllowedNetworks` may connect. RocketMQ always opens it, for every address.
- `listenPort` − 2, where slaves of RocketMQ ask for topics, is served only while the port for slaves is open. RocketMQ
  always serves it.
- A SYNC_MASTER waits for `inSyncReplicas` − 1 slaves, at least one. RocketMQ 4.9 always waits for one slave; 5.3 does
  not wait with the default `inSyncReplicas` 1.
- `minInSyncReplicas` has no effect on slaves of classic replication. It is a setting of the
  [replication link](wire.md#replication-link).
- A report beyond the bytes that were sent to the slave closes its connection, and counts for no message. RocketMQ 4.9
  compares it with the end of the log; 5.3 accepts it.
- A slave that asked for an offset outside of the log never gets data on its connection. RocketMQ begins to send when
  its log has reached that offset, so the slave's log differs before it.
- `brokerId` must fit `brokerRole`, otherwise the start fails. RocketMQ sets the id of a master to 0.
- Controller mode, DLedger, and `duplicationEnable` are not part of this version: their keys stop the start.
"""
