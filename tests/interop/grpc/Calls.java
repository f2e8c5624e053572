import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * The official Java client as it comes, TLS on: ROLE ENDPOINT TOPIC GROUP COUNT; a JSON object a line.
 * The roles and what each does: see python_client.py. Only here are mixed: as steady, with a transaction to the
 * topic GROUP in place of each fifth message, until a line of input; and slow: its listeners take COUNT seconds.
 * Listeners of hold and slow end at once for bodies that begin with probe.
 */
public final class Calls {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final long LIMIT_S = 90;
    private static final int SLOWEST = 50;

    private Calls() {
    }

    public static void main(String[] args) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(args[1])
            .setRequestTimeout(Duration.ofSeconds(10));
        String user = System.getenv("ACCESS_KEY");
        if (user != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(user, System.getenv("SECRET_KEY")));
        }
        ClientConfiguration configuration = builder.build();
        String topic = args[2];
        String group = args[3];
        int count = Integer.parseInt(args[4]);
        Map<String, FilterExpression> all = Collections.singletonMap(topic, FilterExpression.SUB_ALL);
        if (args[0].equals("send")) {
            send(configuration, topic, count);
        } else if (args[0].equals("fifo")) {
            fifo(configuration, topic, count);
        } else if (args[0].equals("flights")) {
            flights(configuration, topic, args[3]);
        } else if (args[0].equals("steady")) {
            steady(configuration, topic, count);
        } else if (args[0].equals("mixed")) {
            mixed(configuration, topic, args[3], count);
        } else if (args[0].equals("simple")) {
            simple(configuration, group, all, count);
        } else if (args[0].equals("late")) {
            late(configuration, group, all, count);
        } else if (args[0].equals("hold")) {
            hold(configuration, group, all);
        } else if (args[0].equals("slow")) {
            slow(configuration, group, all, count);
        } else if (args[0].equals("sql")) {
            simple(configuration, group, Collections.singletonMap(topic,
                new FilterExpression("number >= 10", FilterExpressionType.SQL92)), count);
        } else if (args[0].equals("transact")) {
            transact(configuration, topic);
        } else if (args[0].equals("die")) {
            begin(checking(configuration, topic, new CountDownLatch(1)), topic, "left behind");
            Runtime.getRuntime().halt(0);
        } else if (args[0].equals("answer")) {
            answer(configuration, topic);
        } else if (args[0].equals("recall")) {
            recall(configuration, topic);
        } else if (args[0].equals("fail")) {
            push(configuration, group, all, count, ConsumeResult.FAILURE, 15_000);
        } else {
            push(configuration, group, all, count, ConsumeResult.SUCCESS, 1000);
        }
        System.exit(0);
    }

    private static void send(ClientConfiguration configuration, String topic, int count) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                .build()) {
            for (int i = 0; i < count; i++) {
                String id = producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setTag("tag").setKeys("key-" + i)
                    .addProperty("number", "" + i).setBody(("body-" + i).getBytes(StandardCharsets.UTF_8)).build()).getMessageId().toString();
                say("{\"id\": \"" + id + "\"}");
            }
        }
    }

    private static void fifo(ClientConfiguration configuration, String topic, int count) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                .build()) {
            for (int i = 0; i < count; i++) {
                say("{\"id\": \"" + producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setMessageGroup("one")
                    .setBody(("body-" + i).getBytes(StandardCharsets.UTF_8)).build()).getMessageId() + "\"}");
            }
        }
    }

    private static void flights(ClientConfiguration configuration, String topic, String file) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                .build()) {
            for (String line : Files.readAllLines(Paths.get(file), StandardCharsets.UTF_8)) {
                String[] parts = line.split("\t", 3);
                MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic).setTag(parts[0])
                    .setBody(parts[2].getBytes(StandardCharsets.UTF_8));
                if (!parts[1].isEmpty()) {
                    message.setKeys(parts[1]);
                }
                say("{\"id\": \"" + producer.send(message.build()).getMessageId() + "\"}");
            }
        }
    }

    private static void steady(ClientConfiguration configuration, String topic, int count) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                .build()) {
            for (int i = 0; i < count; i++) {
                String body = "body-" + i;
                try {
                    producer.send(PROVIDER.newMessageBuilder().setTopic(topic)
                        .setBody(body.getBytes(StandardCharsets.UTF_8)).build());
                    say("{\"sent\": \"" + body + "\"}");
                } catch (ClientException error) {
                    say("{\"failed\": \"" + body + "\", \"why\": \""
                        + error.getMessage().replace("\"", "'").replace("\n", " ") + "\"}");
                }
                Thread.sleep(20);
            }
        }
    }

    private static void mixed(ClientConfiguration configuration, String topic, String transactions, int count)
            throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                .setTopics(topic, transactions).setTransactionChecker(message -> TransactionResolution.COMMIT).build()) {
            for (int i = 0; i < count && System.in.available() == 0; i++) {
                String body = "body-" + i;
                byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
                try {
                    if (i % 5 == 0) {
                        Transaction transaction = producer.beginTransaction();
                        producer.send(PROVIDER.newMessageBuilder().setTopic(transactions).setBody(bytes).build(), transaction);
                        transaction.commit();
                        say("{\"committed\": \"" + body + "\"}");
                    } else {
                        producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(bytes).build());
                        say("{\"sent\": \"" + body + "\"}");
                    }
                } catch (ClientException | RuntimeException error) {
                    say("{\"failed\": \"" + body + "\", \"why\": \""
                        + error.toString().replace("\"", "'").replace("\n", " ") + "\"}");
                }
                Thread.sleep(20);
            }
        }
    }

    private static void simple(ClientConfiguration configuration, String group, Map<String, FilterExpression> all,
            int count) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S + count / SLOWEST);
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(3)).setSubscriptionExpressions(all).build()) {
            int seen = 0;
            while (seen < count && System.nanoTime() < end) {
                List<MessageView> messages = consumer.receive(32, Duration.ofSeconds(15));
                for (MessageView message : messages) {
                    told(message);
                    consumer.ack(message);
                    seen++;
                }
            }
        }
    }

    private static void late(ClientConfiguration configuration, String group, Map<String, FilterExpression> all,
            int count) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT_S);
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(3)).setSubscriptionExpressions(all).build()) {
            List<MessageView> messages = new ArrayList<>();
            while (messages.size() < count && System.nanoTime() < end) {
                for (MessageView message : consumer.receive(32, Duration.ofSeconds(60))) {
                    told(message);
                    messages.add(message);
                }
            }
            System.in.read();
            for (MessageView message : messages) {
                try {
                    consumer.ack(message);
                    say("{\"acknowledged\": \"" + text(message) + "\"}");
                } catch (ClientException error) {
                    say("{\"failed\": \"" + text(message) + "\", \"why\": \""
                        + error.getMessage().replace("\"", "'").replace("\n", " ") + "\"}");
                }
            }
        }
    }

    private static void hold(ClientConfiguration configuration, String group, Map<String, FilterExpression> all)
            throws Exception {
        CountDownLatch free = new CountDownLatch(1);
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(group).setSubscriptionExpressions(all).setMessageListener(message -> {
                    told(message);
                    if (text(message).startsWith("probe")) {
                        return ConsumeResult.SUCCESS;
                    }
                    try {
                        free.await();
                    } catch (InterruptedException error) {
                        return ConsumeResult.FAILURE;
                    }
                    return ConsumeResult.SUCCESS;
                }).build()) {
            System.in.read();
            free.countDown();
            // The acknowledgements are on their way.
            Thread.sleep(2000);
        }
    }

    private static void slow(ClientConfiguration configuration, String group, Map<String, FilterExpression> all,
            int seconds) throws Exception {
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(group).setSubscriptionExpressions(all).setMessageListener(message -> {
                    told(message);
                    if (text(message).startsWith("probe")) {
                        return ConsumeResult.SUCCESS;
                    }
                    try {
                        TimeUnit.SECONDS.sleep(seconds);
                    } catch (InterruptedException error) {
                        return ConsumeResult.FAILURE;
                    }
                    return ConsumeResult.SUCCESS;
                }).build()) {
            System.in.read();
        }
    }

    private static void transact(ClientConfiguration configuration, String topic) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        try (Producer producer = checking(configuration, topic, asked)) {
            begin(producer, topic, "committed").commit();
            begin(producer, topic, "rolled back").rollback();
            begin(producer, topic, "asked about");
            asked.await(LIMIT_S, TimeUnit.SECONDS);
            Thread.sleep(1000);
        }
    }

    private static void answer(ClientConfiguration configuration, String topic) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        try (Producer producer = checking(configuration, topic, asked)) {
            asked.await(LIMIT_S, TimeUnit.SECONDS);
            Thread.sleep(1000);
        }
    }

    private static Producer checking(ClientConfiguration configuration, String topic, CountDownLatch asked)
            throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(message -> {
                say("{\"asked\": \"" + text(message) + "\"}");
                asked.countDown();
                return TransactionResolution.COMMIT;
            }).build();
    }

    private static Transaction begin(Producer producer, String topic, String body) throws Exception {
        Transaction transaction = producer.beginTransaction();
        String id = producer.send(PROVIDER.newMessageBuilder().setTopic(topic)
            .setBody(body.getBytes(StandardCharsets.UTF_8)).build(), transaction).getMessageId().toString();
        say("{\"id\": \"" + id + "\"}");
        return transaction;
    }

    private static void recall(ClientConfiguration configuration, String topic) throws Exception {
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                .build()) {
            String handle = delayed(producer, topic, "recalled");
            delayed(producer, topic, "kept");
            say("{\"recalled\": \"" + producer.recallMessage(topic, handle).getMessageId() + "\"}");
            try {
                producer.recallMessage(topic, handle);
            } catch (ClientException error) {
                say("{\"refused\": \"" + error.getMessage().replace("\"", "'").replace("\n", " ") + "\"}");
            }
        }
    }

    private static String delayed(Producer producer, String topic, String body) throws Exception {
        return producer.send(PROVIDER.newMessageBuilder().setTopic(topic)
            .setDeliveryTimestamp(System.currentTimeMillis() + 8000)
            .setBody(body.getBytes(StandardCharsets.UTF_8)).build()).getRecallHandle();
    }

    private static void push(ClientConfiguration configuration, String group, Map<String, FilterExpression> all, int count,
            ConsumeResult result, long restMs) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        try (PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(group).setSubscriptionExpressions(all).setMessageListener(message -> {
                    told(message);
                    left.countDown();
                    return result;
                }).build()) {
            left.await(LIMIT_S + count / SLOWEST, TimeUnit.SECONDS);
            Thread.sleep(restMs);
        }
    }

    private static String text(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    private static String quoted(String text) {
        return text.replace("\\", "\\\\").replace("\"", "\\\"");
    }

    private static void told(MessageView message) {
        say("{\"body\": \"" + quoted(text(message)) + "\", \"keys\": \""
            + String.join(" ", message.getKeys()) + "\", \"tag\": \"" + message.getTag().orElse("") + "\", \"attempt\": "
            + message.getDeliveryAttempt() + "}");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
