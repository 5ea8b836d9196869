"""Access control of RocketMQ 5.3: users that sign their requests, and policies about their rights.

users, policies    the two tables, stored in users.json and acls.json; addresses that policies name
authentication     which user has signed a request
request_resources  which resources a request uses, and what it does with them, by its row in the table
authorization      whether the policies of a user permit this
control            the check of a request: authentication, then authorization
requests           AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010), which read and change the tables
"""
