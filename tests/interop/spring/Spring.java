import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalRequestCallback;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQReplyListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/**
 * A Spring Boot program with rocketmq-spring-boot-starter: it sends in each way, listens in each way, asks and
 * answers, and ends transactions. Its topics and groups begin with the property prefix.
 */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import({Spring.Plain.class, Spring.Orderly.class, Spring.Orders.class, Spring.Answers.class,
    Spring.Transacted.class, Spring.Decisions.class})
public class Spring {
    private static final int LIMIT_S = 90;
    private static final int SEND_MS = 20_000;
    private static final int ONE_SECOND = 1;  // the delay level
    private static final Map<String, Semaphore> DONE = new ConcurrentHashMap<>();

    public static void main(String[] args) {
        try {
            work(SpringApplication.run(Spring.class, args));
            Facts.say("done");
        } catch (Exception error) {
            Facts.say("failed", "error", error);
        }
        System.exit(0);
    }

    private static void work(ConfigurableApplicationContext context) throws Exception {
        RocketMQTemplate template = context.getBean(RocketMQTemplate.class);
        String prefix = context.getEnvironment().getRequiredProperty("prefix");
        send(template, prefix + "_plain");
        sendInOrder(template, prefix + "_orderly");
        sendOrders(template, prefix + "_orders");
        ask(template, prefix + "_questions");
        transact(template, prefix + "_transacted");
        await("plain", 16);
        await("orderly", 12);
        await("orders", 3);
        await("asked", 1);
        await("transacted", 2);
        Thread.sleep(2000);  // in which a message that is rolled back, or comes twice, would arrive
        context.close();
    }

    private static void send(RocketMQTemplate template, String topic) throws Exception {
        for (int i = 0; i < 4; i++) {
            sent("sync", template.syncSend(topic + ":tag", message("sync " + i), SEND_MS));
        }
        for (int i = 0; i < 4; i++) {
            template.asyncSend(topic + ":tag", message("async " + i), callback(), SEND_MS);
        }
        await("async", 4);
        template.sendOneWay(topic + ":tag", message("oneway"));
        List<Message<String>> batch = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            batch.add(message("batch " + i));
        }
        sent("batch", template.syncSend(topic + ":tag", batch, SEND_MS));
        sent("other tag", template.syncSend(topic + ":other", message("other tag"), SEND_MS));
        sent("refused", template.syncSend(topic + ":tag", message("refused"), SEND_MS));
        sent("level", template.syncSend(topic + ":tag", message("level"), SEND_MS, ONE_SECOND));
        sent("timer", template.syncSendDelayTimeMills(topic + ":tag", message("timer"), 1500));
    }

    private static void sendInOrder(RocketMQTemplate template, String topic) {
        for (int i = 0; i < 12; i++) {
            String key = "key " + i % 3;
            sent("orderly", template.syncSendOrderly(topic, message(key + " number " + i), key, SEND_MS));
        }
    }

    private static void sendOrders(RocketMQTemplate template, String topic) {
        for (int i = 0; i < 3; i++) {
            Order order = new Order();
            order.customer = "Zoë " + i;
            order.pieces = i;
            sent("order", template.syncSend(topic, order, SEND_MS));
        }
    }

    private static void ask(RocketMQTemplate template, String topic) {
        for (int i = 0; i < 3; i++) {
            String reply = template.sendAndReceive(topic, "question " + i, String.class, SEND_MS);
            Facts.say("reply", "body", reply);
        }
        template.sendAndReceive(topic, "question without waiting", new RocketMQLocalRequestCallback<String>() {
            @Override
            public void onSuccess(String reply) {
                Facts.say("reply", "body", reply);
                done("asked").release();
            }

            @Override
            public void onException(Throwable error) {
                Facts.say("failed", "error", error);
            }
        }, SEND_MS);
    }

    private static void transact(RocketMQTemplate template, String topic) {
        for (RocketMQLocalTransactionState state : RocketMQLocalTransactionState.values()) {
            Message<String> message = message(state.name());
            TransactionSendResult result = template.sendMessageInTransaction(topic, message, state);
            Facts.say("half", "status", result.getSendStatus(), "state", result.getLocalTransactionState());
        }
    }

    private static Message<String> message(String body) {
        return MessageBuilder.withPayload(body).setHeader(RocketMQHeaders.KEYS, "of " + body)
            .setHeader("colour", "red").build();
    }

    private static void sent(String how, SendResult result) {
        Facts.say("sent", "how", how, "status", result.getSendStatus(), "id", result.getMsgId(),
            "queue", result.getMessageQueue().getQueueId());
    }

    private static SendCallback callback() {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent("async", result);
                done("async").release();
            }

            @Override
            public void onException(Throwable error) {
                Facts.say("failed", "error", error);
            }
        };
    }

    private static void received(String listener, MessageExt message) {
        Facts.message("received", listener, message);
        done(listener).release();
    }

    private static Semaphore done(String what) {
        return DONE.computeIfAbsent(what, name -> new Semaphore(0));
    }

    /** Wait until it has happened that many times. */
    private static void await(String what, int times) throws InterruptedException {
        if (!done(what).tryAcquire(times, LIMIT_S, TimeUnit.SECONDS)) {
            Facts.say("timeout", "of", what, "happened", done(what).availablePermits(), "wanted", times);
            System.exit(1);
        }
    }

    /** What is sent as JSON. */
    public static class Order {
        public String customer;
        public int pieces;
    }

    /** Takes messages concurrently, by a tag; refuses one of them once. */
    @RocketMQMessageListener(topic = "${prefix}_plain", consumerGroup = "${prefix}_plain", selectorExpression = "tag",
        delayLevelWhenNextConsume = ONE_SECOND, enableMsgTrace = true,
        tlsEnable = "${rocketmq.producer.tls-enable:false}")
    static class Plain implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            if (body.equals("refused") && message.getReconsumeTimes() == 0) {
                throw new IllegalStateException("refused once");
            }
            received("plain", message);
        }
    }

    /** Takes messages in order. */
    @RocketMQMessageListener(topic = "${prefix}_orderly", consumerGroup = "${prefix}_orderly",
        consumeMode = ConsumeMode.ORDERLY, tlsEnable = "${rocketmq.producer.tls-enable:false}")
    static class Orderly implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            received("orderly", message);
        }
    }

    /** Takes objects. */
    @RocketMQMessageListener(topic = "${prefix}_orders", consumerGroup = "${prefix}_orders",
        tlsEnable = "${rocketmq.producer.tls-enable:false}")
    static class Orders implements RocketMQListener<Order> {
        @Override
        public void onMessage(Order order) {
            Facts.say("order", "customer", order.customer, "pieces", order.pieces);
            done("orders").release();
        }
    }

    /** Answers questions. */
    @RocketMQMessageListener(topic = "${prefix}_questions", consumerGroup = "${prefix}_questions",
        replyTimeout = SEND_MS, tlsEnable = "${rocketmq.producer.tls-enable:false}")
    static class Answers implements RocketMQReplyListener<String, String> {
        @Override
        public String onMessage(String question) {
            return "answer to " + question;
        }
    }

    /** Takes what became of transactions. */
    @RocketMQMessageListener(topic = "${prefix}_transacted", consumerGroup = "${prefix}_transacted",
        tlsEnable = "${rocketmq.producer.tls-enable:false}")
    static class Transacted implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            received("transacted", message);
        }
    }

    /** Ends transactions as their argument says; commits what it left open, when the broker asks. */
    @RocketMQTransactionListener
    static class Decisions implements RocketMQLocalTransactionListener {
        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object state) {
            return (RocketMQLocalTransactionState) state;
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            String body = new String((byte[]) message.getPayload(), StandardCharsets.UTF_8);
            Facts.say("asked", "body", body);
            return body.equals("ROLLBACK") ? RocketMQLocalTransactionState.ROLLBACK
                : RocketMQLocalTransactionState.COMMIT;
        }
    }
}
