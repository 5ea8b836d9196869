"""`mqbench`: loads a broker over the wire, this one or Apache RocketMQ, and measures how fast it answers.

    commands      what the shell sees
    options       what its commands have in common
    workloads     what a load is: sizes, counts, rate; presets by the names that OpenMessaging's benchmark uses
    clusters      where the brokers are, topics made ready
    prepared      requests encoded once, of which only opaque, born time and unique ids are patched
    flights       their patched fields, and which of them are under way since when
    answers       opaque numbers out of a stream of answers
    sockets       connections, plain or TLS
    loop          sockets and poll: the one loop in which every load runs
    send_load     many sends in flight, as fast as they are answered or at a fixed rate
    one_send      one send in flight
    pull_load     queues read to their end, or followed
    recorder      latencies as they come -> histogram, time line
    figures       what a run measured, and how runs of several processes become one
    compare       two brokers in turns, and the ratios of their figures

The loader must not be what is measured, so nothing here makes an object per message: requests are bytes from before
the run, and answers are counted and timed a read at a time, by a compiled leaf or NumPy.
"""
