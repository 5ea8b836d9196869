"""The rules of replication, without I/O: which node leads, what counts as a copy, and what is committed.

A group of nodes replicates one commit log. One node leads: it alone appends, and it sends the bytes of its log to the
followers. `Node.step(now, event)` takes what happened on one node and returns the effects that its owner carries out,
in order. The core has no socket, file, thread or clock, so a test can run many nodes on simulated disks and networks.

Which node leads, and which stores count as copies, stands in one record of a store of decisions (etcd), which changes
by compare-and-swap only. A clock never decides about data; times only decide when a node tries something.

The rules, and the modules that keep them:

1. **Promise** (`local`). A node that learns of an epoch writes it to its disk before it acts on it. From then on it
   refuses handshakes, data and acknowledgements of lower epochs, and its refusal carries the higher epoch.
2. **One decider** (`decisions`, `campaign`, `leader`). Only the leader of the recorded epoch changes the set of copies.
   Only a store in that set begins a term, with an epoch above the record's and above its own promise. Both are
   compare-and-swaps. A node whose swap got no response reads the record before it concludes anything; until the
   record's revision moves on, the swap may still take effect. A leader that is refused with a higher epoch, and is
   still recorded, begins another term above that epoch.
3. **Commit** (`commit`). Committed is the lowest synced end of all stores in the recorded set and in the proposed ones,
   acknowledged in the leader's own epoch, with its own. It never decreases. A removal counts once the store of
   decisions has confirmed it; an addition counts before it is requested. Only a store that has acknowledged all
   committed bytes and the epoch record is added: the leader before may have committed more than this one has heard.
4. **Visible = committed** (`leader`, `follower`). Responses to producers, queues, index and tables use only what is
   committed, so nothing that is derived from the log is ever undone.
5. **Never below the minimum** (`in_sync`). A change never makes the recorded set smaller than `min`. A store that
   failed is replaced by one that caught up in one swap. A new group starts with one store, and commits nothing before
   its set has `min`.
6. **Epoch record** (`leader`). A term begins with a record of its own in the log. Nothing is committed in a term before
   that record is; bytes before it are committed with it. So no epoch is empty.
7. **Truncation** (`epochs`, `follower`). A follower goes back to the end of the longest common prefix of both epoch
   histories, and the truncation is on its disk before the next byte is written. A truncation below its own committed
   mark means that a log is damaged: the node stops.
8. **Acknowledged = synced** (`follower`, `leader`). A follower acknowledges only what its disk has synced. A failed
   sync, or a log that lost acknowledged bytes, takes a store out of the set for good: the node gets a new store id.
9. **Queue offsets** (the store). A new leader numbers its messages after its whole log, the uncommitted end included.

Why no acknowledged byte is lost: the successor is in the recorded set, which every set that the old leader commits with
contains (3). It has synced what it acknowledged before its promise (8). After its promise the old leader lacks its
acknowledgement (1), and cannot remove it from the set, because the record has changed (2). No step mentions time.

Two settings of a group change less than they seem to:

- `acks` "leader" (ASYNC_MASTER): the leader acknowledges what it has synced itself, and a fail-over may lose the rest.
  What is committed follows the same rules, and followers make no more than that visible.
- No store of decisions (a static leader): the owner of the leader responds to Read and Swap from a file on its disk.
  The owner of a follower responds to Read with a record that names the leader and has an empty set: the follower
  follows that leader, and never begins a term. So a promise above the leader's epoch is of a term of another leader,
  and the file is not the newest record: the leader stops. A store of decisions would have refused its swap.

Source: docs/decisions/0013-replication.md.
"""
