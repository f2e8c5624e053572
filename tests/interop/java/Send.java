import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/**
 * Sends `count` messages to a topic: how = sync | async | oneway | batch | orderly, or several with commas between.
 * With ak and sk, it signs its requests. With refused = true, an error of an async send is the fact "refused".
 * With hold = seconds, it stays connected for so long after it has said "held".
 * With timer = ms, the messages are for a later time; with recall = true, every other one is taken back.
 */
public final class Send {
    private Send() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        DefaultMQProducer producer = new DefaultMQProducer("interop_producer", Keys.hook(options));
        Clients.prepare(producer, options);
        producer.setSendMsgTimeout(10000);
        producer.setCompressMsgBodyOverHowmuch(Integer.parseInt(options.getOrDefault("compress", "4096")));
        producer.start();
        try {
            for (String how : options.get("how").split(",")) {
                send(producer, how, options);
            }
            if (options.containsKey("hold")) {
                Facts.say("held");
                Thread.sleep(1000L * Integer.parseInt(options.get("hold")));
            }
        } finally {
            producer.shutdown();
        }
        Facts.say("done");
        System.exit(0);
    }

    private static void send(DefaultMQProducer producer, String how, Map<String, String> options) throws Exception {
        List<Message> messages = messages(how, options);
        CountDownLatch answered = new CountDownLatch(how.equals("async") ? messages.size() : 0);
        if (how.equals("batch")) {
            report(producer.send(messages));
        }
        for (int i = 0; i < messages.size() && !how.equals("batch"); i++) {
            Message message = messages.get(i);
            if (how.equals("sync")) {
                SendResult result = producer.send(message);
                report(result);
                if (options.containsKey("recall") && i % 2 == 1) {
                    recall(producer, message.getTopic(), result);
                }
            } else if (how.equals("oneway")) {
                producer.sendOneway(message);
            } else if (how.equals("orderly")) {
                report(producer.send(message, (queues, it, key) -> queues.get((Integer) key % queues.size()), i % 3));
            } else {
                producer.send(message, new Reporter(answered, options.containsKey("refused")));
            }
        }
        if (how.equals("oneway")) {
            // Sends wait for the connection in the background, and a shutdown now would drop them without a word.
            Thread.sleep(1000);
        }
        if (!answered.await(30, TimeUnit.SECONDS)) {
            Facts.say("failed", "error", answered.getCount() + " sends were never answered");
        }
    }

    private static List<Message> messages(String how, Map<String, String> options) {
        String padding = "x".repeat(Integer.parseInt(options.getOrDefault("padding", "0")));
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(options.get("count")); i++) {
            String body = how + "-" + i + "-größe" + padding;
            String tag = i % 2 == 0 ? "even" : "odd";
            Message message = new Message(options.get("topic"), tag, "key-" + i, body.getBytes(StandardCharsets.UTF_8));
            message.setFlag(i);
            message.putUserProperty("colour", "blå " + i);
            if (options.containsKey("delay")) {
                message.setDelayTimeLevel(Integer.parseInt(options.get("delay")));
            }
            if (options.containsKey("timer")) {
                // What setDelayTimeMs does, which 4.9 does not have.
                MessageAccessor.putProperty(message, "TIMER_DELAY_MS", options.get("timer"));
            }
            messages.add(message);
        }
        return messages;
    }

    /** By reflection: 4.9 has no recall. */
    private static void recall(DefaultMQProducer producer, String topic, SendResult result) throws Exception {
        Object handle = SendResult.class.getMethod("getRecallHandle").invoke(result);
        Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
            .invoke(producer, topic, handle);
        Facts.say("recalled", "id", id, "sent", result.getMsgId());
    }

    private static void report(SendResult result) {
        Facts.say("sent", "status", result.getSendStatus(), "id", result.getMsgId(), "offset_id", result.getOffsetMsgId(),
            "broker", result.getMessageQueue().getBrokerName(), "queue", result.getMessageQueue().getQueueId(),
            "offset", result.getQueueOffset());
    }

    private static final class Reporter implements SendCallback {
        private final CountDownLatch answered;
        private final String failure;

        Reporter(CountDownLatch answered, boolean maybeRefused) {
            this.answered = answered;
            this.failure = maybeRefused ? "refused" : "failed";
        }

        @Override
        public void onSuccess(SendResult result) {
            report(result);
            answered.countDown();
        }

        @Override
        public void onException(Throwable error) {
            Facts.say(failure, "error", error, "cause", error.getCause());
            answered.countDown();
        }
    }
}
