"""`mqadmin doctor`: connects as a client would, finds what is wrong with a cluster, and names the next step.

    findings.py       Finding, NotExamined, Report: the outcomes of checks, and the schema of `--json`
    subject.py        the state that several checks read: views of name servers, state and settings of brokers
    network.py        checks of name servers, registrations and advertised addresses
    broker_state.py   checks of clocks, disks, storage and settings
    replication.py    checks of masters, their copies, and slaves
    deferred.py       checks of delayed messages and timers
    topics.py         checks of routes and permissions
    groups.py         checks of one consumer group
    metrics.py        checks of the metrics page of one broker
    examination.py    the table of all checks; runs each within a limit of time
    command.py        the command line, the table and the exit code

A check is an asynchronous generator that gets the Subject. It only reads: it sends no message and changes no setting.
A state that a broker does not report, such as one of RocketMQ 4.9, is NotExamined, and is no finding.
"""
