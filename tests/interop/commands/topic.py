"""Commands about topics."""

from typing import Final

from tests.interop.commands import Case

CASES: Final = [
    Case("updateTopic", "-c {cluster} -t Made"),
    Case("updateTopic", "-b {broker} -t Made -r 3 -w 2 -p 4 -u true -s true"),
    Case("updateTopic", "-c {cluster} -t Ordered -o true"),
    Case("updateTopic", "-c {cluster} -t Made -p 9", fails=True),
    Case("updateTopic", "-b 127.0.0.1:1 -t Made", fails=True),
    Case("updateTopicList", "-b {broker} -f {topics_file}", requires_5=True),
    Case("topicRoute", "-t Wide -l", before=["updateTopic -b {broker} -t Wide -r 3 -w 3"]),
    Case("updateTopicPerm", "-c {cluster} -t Made -p 4", before=["updateTopic -c {cluster} -t Made -r 3 -w 3"]),
    Case("updateTopicPerm", "-b {broker} -t Made -p 2", before=["updateTopic -c {cluster} -t Made -r 3 -w 3"]),
    Case("updateTopicPerm", "-b {broker} -t Made -p 6", before=["updateTopic -c {cluster} -t Made -r 3 -w 3"]),
    Case("updateTopicPerm", "-c {cluster} -t Unknown -p 6", fails=True),
    Case("deleteTopic", "-c {cluster} -t Doomed", before=["updateTopic -c {cluster} -t Doomed"]),
    Case("topicRoute", "-t {topic}"),
    Case("topicRoute", "-t {topic} -l"),
    Case("topicRoute", "-t Unknown", fails=True),
    Case("topicStatus", "-t {topic}", requires_5=True),
    Case("topicStatus", "-t {topic} -c {cluster}"),
    Case("topicStatus", "-t Unknown", fails=True),
    Case("topicClusterList", "-t {topic}"),
    Case("topicClusterList", "-t Unknown", fails=True),
    Case("topicList"),
    Case("topicList", "-c"),
    Case("allocateMQ", "-t {topic} -i 10.0.0.1,10.0.0.2,10.0.0.3"),
    Case("allocateMQ", "-t {topic} -i 10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4,10.0.0.5,10.0.0.6"),
    Case("allocateMQ", "-t Unknown -i 10.0.0.1", fails=True),
]
