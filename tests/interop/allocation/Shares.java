import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Prints the allocations of RocketMQ's strategies. Each line of the input is a strategy, queues (topic/broker/number) and
 * client ids: three fields separated by tabs, with spaces between their elements. Each line of the output has, for each
 * client in the order of the input, the indexes of its queues: commas between queues, semicolons between clients.
 */
public final class Shares {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            List<MessageQueue> queues = new ArrayList<>();
            for (String text : words(parts[1])) {
                String[] names = text.split("/");
                queues.add(new MessageQueue(names[0], names[1], Integer.parseInt(names[2])));
            }
            out.println(shares(strategy(parts[0]), queues, words(parts[2])));
        }
    }

    /** Sorts both lists first, as a client does. */
    private static String shares(AllocateMessageQueueStrategy strategy, List<MessageQueue> queues, List<String> clients) {
        List<MessageQueue> sortedQueues = new ArrayList<>(queues);
        List<String> sortedClients = new ArrayList<>(clients);
        Collections.sort(sortedQueues);
        Collections.sort(sortedClients);
        return clients.stream()
            .map(client -> strategy.allocate("group", client, sortedQueues, sortedClients).stream()
                .map(queue -> Integer.toString(queues.indexOf(queue)))
                .collect(Collectors.joining(",")))
            .collect(Collectors.joining(";"));
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new java.util.HashSet<>(Arrays.asList("r1", "r2")));
                return byRoom;
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            case "CONSISTENT_HASH-3":
                return new AllocateMessageQueueConsistentHash(3);
            default:
                return new AllocateMachineRoomNearby(strategy(name.substring(name.indexOf('-') + 1)), new Rooms());
        }
    }

    private static List<String> words(String text) {
        return text.isEmpty() ? new ArrayList<>() : Arrays.asList(text.split(" "));
    }

    /** The machine room is the part of a name before the first dash. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return queue.getBrokerName().split("-")[0];
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return clientId.split("-")[0];
        }
    }
}
