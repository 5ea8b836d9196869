import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Timer;
import java.util.TimerTask;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Phaser;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** The Java driver, one source for every client version. Command line and output: ../../drivers.py. */
public final class Driver {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final int REQUEST_MS = 10_000;
    private static final long SUSPENDED_MS = 50;
    private static final BufferedReader IN =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    /** Signs the requests; null without credentials. */
    private static RPCHook signer;

    public static void main(String[] args) throws Exception {
        exitAfter(Long.parseLong(args[4]));
        if (args.length > 5) {
            signer = new AclClientRPCHook(new SessionCredentials(args[5], args[6]));
        }
        switch (args[0]) {
            case "produce": produce(args[1], args[2], args[3]); break;
            case "query": query(args[1], args[3]); break;
            case "request": request(args[1], args[2], args[3]); break;
            case "reply": reply(args[1], args[2], args[3]); break;
            case "transact": transact(args[1], args[2], args[3]); break;
            default: consume(args[1], args[2], args[3], args[0]);
        }
        emit(event("left"));
        System.exit(0);
    }

    private static void produce(String namesrv, String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, signer);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(REQUEST_MS);  // machines that run tests are busy
        producer.setMqClientApiTimeout(REQUEST_MS);
        producer.start();
        emit(event("started"));
        Phaser inFlight = new Phaser(1);
        List<JSONObject> batch = new ArrayList<>();
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            JSONObject order = JSON.parseObject(line);
            switch (order.getString("mode")) {
                case "sync": sendSync(producer, topic, order); break;
                case "async": sendAsync(producer, topic, order, inFlight); break;
                case "oneway": producer.sendOneway(message(topic, order)); break;
                case "recalled": recall(producer, topic, order); break;
                default: batch.add(order);
            }
            if (order.getBooleanValue("last_of_batch")) {
                sendBatch(producer, topic, batch);
                batch.clear();
            }
        }
        inFlight.arriveAndAwaitAdvance();
        producer.shutdown();
    }

    private static void sendSync(DefaultMQProducer producer, String topic, JSONObject order) throws Exception {
        try {
            sent(producer.send(message(topic, order)), order);
        } catch (MQClientException | MQBrokerException | RemotingException error) {
            failed(order, error);
        }
    }

    private static void sendAsync(DefaultMQProducer producer, String topic, JSONObject order, Phaser inFlight)
        throws Exception {
        inFlight.register();
        producer.send(message(topic, order), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent(result, order);
                inFlight.arriveAndDeregister();
            }

            @Override
            public void onException(Throwable error) {
                failed(order, error);
                inFlight.arriveAndDeregister();
            }
        });
    }

    private static void sendBatch(DefaultMQProducer producer, String topic, List<JSONObject> batch) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (JSONObject order : batch) {
            messages.add(message(topic, order));
        }
        SendResult result = producer.send(messages);
        String[] ids = result.getMsgId().split(",");
        String[] offsetIds = result.getOffsetMsgId().split(",");
        for (int i = 0; i < batch.size(); i++) {
            emit(sentEvent(batch.get(i), result, ids[i], result.getQueueOffset() + i)
                .fluentPut("offset_id", offsetIds[i]));
        }
    }

    private static void consume(String namesrv, String topic, String group, String command) throws Exception {
        DefaultMQPushConsumer consumer = newConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        String[] selected = topic.split(" where ", 2);
        if (selected.length == 2) {
            consumer.subscribe(selected[0], MessageSelector.bySql(selected[1]));
        } else {
            for (String name : topic.split(",")) {
                consumer.subscribe(name, "*");
            }
        }
        if (command.equals("broadcast")) {
            // The enumeration is in another package in 5.x; broadcasting is its first value.
            consumer.setMessageModel(consumer.getMessageModel().getDeclaringClass().getEnumConstants()[0]);
        }
        if (!command.equals("consume")) {
            consumer.setMaxReconsumeTimes(1);
        }
        if (command.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Driver::received);
                context.setSuspendCurrentQueueTimeMillis(SUSPENDED_MS);
                return fails(messages) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Driver::received);
                return fails(messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        emit(event("started"));
        while (IN.readLine() != null) { }
        consumer.shutdown();
    }

    private static DefaultMQPushConsumer newConsumer(String group) {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, signer, new AllocateMessageQueueAveragely());
        consumer.setMqClientApiTimeout(REQUEST_MS);  // machines that run tests are busy
        return consumer;
    }

    private static boolean fails(List<MessageExt> messages) {
        MessageExt message = messages.get(0);
        String fails = message.getUserProperty("fails");
        return fails != null && message.getReconsumeTimes() < Integer.parseInt(fails);
    }

    private static void request(String namesrv, String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, signer);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        emit(event("started"));
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            JSONObject order = JSON.parseObject(line);
            Object result = request(producer, message(topic, order));
            if (result instanceof MessageExt) {
                received((MessageExt) result);
            } else {
                emit(event("failed").fluentPut("n", order.get("n")).fluentPut("error", String.valueOf(result)));
            }
        }
        producer.shutdown();
    }

    /**
     * Returns a reply, an exception, or null after a timeout. In 5.3.3 the blocking request method returns as soon as
     * the request is sent. The method with a callback works in every version; 5.3.3 also calls back once with null.
     */
    private static Object request(DefaultMQProducer producer, Message message) throws Exception {
        BlockingQueue<Object> results = new LinkedBlockingQueue<>();
        producer.request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    results.add(reply);
                }
            }

            @Override
            public void onException(Throwable error) {
                results.add(error);
            }
        }, REQUEST_MS);
        return results.poll(REQUEST_MS, TimeUnit.MILLISECONDS);
    }

    private static void reply(String namesrv, String topic, String group) throws Exception {
        DefaultMQProducer replier = new DefaultMQProducer(group + "-replies", signer);
        replier.setNamesrvAddr(namesrv);
        replier.start();
        DefaultMQPushConsumer consumer = newConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                received(message);
                try {
                    sent(replier.send(replyTo(message), REQUEST_MS), new JSONObject().fluentPut("n", nameOf(message)));
                } catch (Exception error) {
                    emit(event("failed").fluentPut("n", nameOf(message)).fluentPut("error", error.toString()));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        emit(event("started"));
        while (IN.readLine() != null) { }
        consumer.shutdown();
        replier.shutdown();
    }

    private static Message replyTo(MessageExt message) throws MQClientException {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        body.writeBytes("re: ".getBytes(StandardCharsets.UTF_8));
        body.writeBytes(message.getBody());
        Message reply = MessageUtil.createReplyMessage(message, body.toByteArray());
        reply.putUserProperty("n", nameOf(message));
        return reply;
    }

    private static String nameOf(MessageExt message) {
        return message.getUserProperty("n");
    }

    private static void query(String namesrv, String group) throws Exception {
        DefaultMQProducer client = new DefaultMQProducer(group, signer);
        client.setNamesrvAddr(namesrv);
        client.start();
        emit(event("started"));
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            JSONObject query = JSON.parseObject(line);
            JSONObject result = event("query_result").fluentPut("n", query.get("n"));
            try {
                result.put("found", found(client, query));
            } catch (MQClientException | MQBrokerException error) {
                result.fluentPut("found", new ArrayList<>()).put("error", error.toString());
            }
            emit(result);
        }
        client.shutdown();
    }

    private static List<JSONObject> found(DefaultMQProducer client, JSONObject query) throws Exception {
        String topic = query.getString("topic");
        String value = query.getString("value");
        long tomorrow = System.currentTimeMillis() + 86_400_000;
        List<MessageExt> messages = new ArrayList<>();
        switch (query.getString("how")) {
            case "key": messages.addAll(client.queryMessage(topic, value, 64, 0, tomorrow).getMessageList()); break;
            case "unique": messages.add(client.getDefaultMQProducerImpl().queryMessageByUniqKey(topic, value)); break;
            default: messages.add(client.viewMessage(topic, value));
        }
        List<JSONObject> events = new ArrayList<>();
        for (MessageExt message : messages) {
            if (message != null) {
                events.add(receivedEvent(message));
            }
        }
        return events;
    }

    private static void transact(String namesrv, String topic, String group) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group, signer);
        producer.setNamesrvAddr(namesrv);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return stateOf(message.getUserProperty("local"));
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return stateOf(message.getUserProperty("check"));
            }
        });
        producer.start();
        emit(event("started"));
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            JSONObject order = JSON.parseObject(line);
            sent(producer.sendMessageInTransaction(message(topic, order), null), order);
        }
        producer.shutdown();
    }

    private static LocalTransactionState stateOf(String decision) {
        switch (decision) {
            case "commit": return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback": return LocalTransactionState.ROLLBACK_MESSAGE;
            default: return LocalTransactionState.UNKNOW;
        }
    }

    /** Sends a message and recalls it; only 5.x clients have this method. */
    private static void recall(DefaultMQProducer producer, String topic, JSONObject order) throws Exception {
        SendResult result = producer.send(message(topic, order));
        Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
        DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class).invoke(producer, topic, handle);
        sent(result, order);
    }

    private static Message message(String topic, JSONObject order) throws ReflectiveOperationException {
        Message message = new Message(topic, Base64.getDecoder().decode(order.getString("body")));
        message.setTags(order.getString("tags"));
        message.setKeys(order.getJSONArray("keys").toJavaList(String.class));
        order.getJSONObject("properties").forEach((name, value) -> message.putUserProperty(name, (String) value));
        if (order.getIntValue("delay_level") > 0) {
            message.setDelayTimeLevel(order.getIntValue("delay_level"));
        }
        if (order.getString("timer_setter") != null && !order.getString("timer_setter").isEmpty()) {  // 5.x only
            Message.class.getMethod(order.getString("timer_setter"), long.class)
                .invoke(message, order.getLongValue("timer_ms"));
        }
        return message;
    }

    private static void sent(SendResult result, JSONObject order) {
        emit(sentEvent(order, result, result.getMsgId(), result.getQueueOffset()));
    }

    private static JSONObject sentEvent(JSONObject order, SendResult result, String id, long offset) {
        return event("sent").fluentPut("n", order.get("n")).fluentPut("status", result.getSendStatus().name())
            .fluentPut("id", id).fluentPut("queue", result.getMessageQueue().getQueueId()).fluentPut("offset", offset)
            .fluentPut("offset_id", result.getOffsetMsgId());
    }

    private static void failed(JSONObject order, Throwable error) {
        // After several attempts, the error of the broker is the cause.
        String text = error.getCause() == null ? error.toString() : error + ", caused by " + error.getCause();
        emit(event("failed").fluentPut("n", order.get("n")).fluentPut("error", text));
    }

    private static void received(MessageExt message) {
        emit(receivedEvent(message));
    }

    private static JSONObject receivedEvent(MessageExt message) {
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        return event("received").fluentPut("topic", message.getTopic()).fluentPut("queue", message.getQueueId())
            .fluentPut("offset", message.getQueueOffset())
            .fluentPut("id", message.getMsgId() == null ? "" : message.getMsgId())
            .fluentPut("tags", message.getTags()).fluentPut("keys", message.getKeys())
            .fluentPut("properties", message.getProperties())
            .fluentPut("body", Base64.getEncoder().encodeToString(body));
    }

    private static JSONObject event(String name) {
        return new JSONObject().fluentPut("event", name);
    }

    private static synchronized void emit(JSONObject event) {
        OUT.println(event.toJSONString());
    }

    private static void exitAfter(long seconds) {
        new Timer(true).schedule(new TimerTask() {
            @Override
            public void run() {
                Runtime.getRuntime().halt(3);
            }
        }, seconds * 1000);
    }
}
