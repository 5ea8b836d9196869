import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Asynchronous sends of mixed sizes by RocketMQ's own producer: bodies of 100 bytes to 4 KiB that do not compress,
 * tags and keys of varying lengths, at most IN_FLIGHT unanswered. Prints "sent failed" after the given time.
 */
public class MixedProducer {
    static final int IN_FLIGHT = 256;

    public static void main(String[] args) throws Exception {
        String namesrv = args[0];
        long endNanos = System.nanoTime() + (long) (Double.parseDouble(args[1]) * 1e9);
        Random random = new Random(Long.parseLong(args[2]));
        DefaultMQProducer producer = new DefaultMQProducer("mixed");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("mixed-" + args[2]);
        producer.start();
        LongAdder sent = new LongAdder();
        LongAdder failed = new LongAdder();
        Semaphore free = new Semaphore(IN_FLIGHT);
        byte[] source = new byte[8192];
        random.nextBytes(source);
        for (long number = 0; System.nanoTime() < endNanos; number++) {
            byte[] body = new byte[100 + random.nextInt(3996)];
            System.arraycopy(source, random.nextInt(source.length - body.length), body, 0, body.length);
            Message message = new Message("Mixed", "tag" + number % 7, "key-" + Long.toString(number, 36), body);
            free.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent.increment();
                    free.release();
                }

                @Override
                public void onException(Throwable error) {
                    failed.increment();
                    free.release();
                }
            });
        }
        free.acquire(IN_FLIGHT);
        System.out.println(sent.sum() + " " + failed.sum());
        producer.shutdown();
    }
}
