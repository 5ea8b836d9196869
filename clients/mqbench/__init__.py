"""`mqbench`: loads a broker over the network, this one or Apache RocketMQ, and measures its throughput and latency.

    commands           the command line
    options            the options that commands share
    workloads          parameters of a load: sizes, counts, rate; presets with the names of OpenMessaging's benchmark
    clusters           brokers to load, and the topics on them
    prepared_frames    requests encoded before the run; only opaque, born time and unique ids are patched
    signed_frames      their signatures, for brokers with access control
    in_flight          the patched fields, and the requests in flight with their start times
    response_counter   opaques from a stream of responses
    sockets            connections, plain or TLS
    loop               sockets and poll: the loop in which every load runs
    send_load          many sends in flight, at full speed or at a fixed rate
    single_send_load   one send in flight
    pull_load          queues read to their end, or followed
    recorder           latencies -> histogram and time line; figures of a run, and of several processes together
    runs               workloads in one or several processes
    compare            two brokers alternately, and the ratios of their figures
    display, plot      tables, progress and pictures

The loader must not be the bottleneck, so no object is created per message: requests are encoded before the run, and
responses are counted and timed once per read, by a compiled module or NumPy.
"""
