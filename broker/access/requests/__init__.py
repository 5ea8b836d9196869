"""What each request code needs: one table, and the types of its columns.

table      one row for each request code that is served
needs      the column of RocketMQ 4.9: permissions on topics and groups, read by `plain_acl`
uses       the column of RocketMQ 5.3: resources that the request names, read by `auth`
resources  resources and actions, in requests and in policies
"""
