"""A store that follows another one: its log consists of the bytes of the other log.

`ReplicaLog` is what the owner of the connection uses. A follower takes no messages (RunningFlag.FOLLOWER). The role is
decided at the start, and a change of role is a restart.

Source: docs/architecture.md, "Followers"; docs/reference/disk.md, "Followers".
"""
