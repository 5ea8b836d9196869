"""RocketMQ's commands. They print the columns and rows of its tool 5.3.3: plain text, headers with `#`, no color.

A module holds one group of commands, in a list that `app.py` registers:

    COMMANDS = Commands()

    @COMMANDS.add("brokerStatus", "Fetch broker runtime status data.")
    async def broker_status(admin: Admin, broker: BrokerAddress = None, cluster: ClusterName = None) -> None:
        printf("%-32s: %s%n", ...)

The names of commands, options and columns are RocketMQ's.
"""
