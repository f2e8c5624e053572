import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;

/**
 * RocketMQ's own gRPC client: rounds of sends, a recall, receives and acknowledgements, each call timed.
 * With ak and sk, it signs its calls. With refused, an error is the fact "refused".
 */
public final class Grpc {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int MESSAGES = 10;
    private static final int RECEIVES = 20;

    private Grpc() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        String topic = options.get("topic");
        String delayed = options.get("delayed");
        ClientConfigurationBuilder building = ClientConfiguration.newBuilder()
            .setEndpoints(options.get("endpoints")).enableSsl(false).setRequestTimeout(Duration.ofMinutes(1));
        if (options.containsKey("ak")) {
            building.setCredentialProvider(new StaticSessionCredentialsProvider(options.get("ak"), options.get("sk")));
        }
        ClientConfiguration configuration = building.build();
        Map<String, FilterExpression> subscriptions = new HashMap<>();
        subscriptions.put(topic, FilterExpression.SUB_ALL);
        subscriptions.put(delayed, FilterExpression.SUB_ALL);
        try (Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                .setTopics(topic, delayed).build();
             SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(options.get("group")).setAwaitDuration(Duration.ofSeconds(2))
                .setSubscriptionExpressions(subscriptions).build()) {
            for (int round = 0; round < Integer.parseInt(options.get("rounds")); round++) {
                round(round, producer, consumer, topic, delayed);
            }
        } catch (ClientException | IllegalStateException refusal) {
            if (!options.containsKey("refused")) {
                throw refusal;
            }
            Facts.say("refused", "error", refusal, "cause", refusal.getCause());
        }
        Facts.say("done");
        System.exit(0);
    }

    private static void round(int round, Producer producer, SimpleConsumer consumer, String topic, String delayed)
            throws Exception {
        Set<String> missing = new HashSet<>();
        for (int i = 0; i < MESSAGES; i++) {
            MessageBuilder message = PROVIDER.newMessageBuilder().setTopic(topic).setTag("tag").setKeys("key-" + i);
            missing.add(sent(producer, message, round + "-" + i).getMessageId().toString());
        }
        long now = System.currentTimeMillis();
        SendReceipt later = sent(producer, PROVIDER.newMessageBuilder().setTopic(delayed)
            .setDeliveryTimestamp(now + 600_000), "never");
        long began = System.nanoTime();
        producer.recallMessage(delayed, later.getRecallHandle());
        Facts.say("recalled", "ms", millis(began));
        missing.add(sent(producer, PROVIDER.newMessageBuilder().setTopic(delayed).setDeliveryTimestamp(now + 1_000), "soon")
            .getMessageId().toString());
        for (int receives = 0; receives < RECEIVES && !missing.isEmpty(); receives++) {
            began = System.nanoTime();
            List<MessageView> messages = consumer.receive(16, Duration.ofSeconds(20));
            Facts.say("received", "ms", millis(began), "count", messages.size());
            for (MessageView message : messages) {
                if (!missing.remove(message.getMessageId().toString())) {
                    Facts.say("failed", "twice", message.getMessageId());
                }
                consumer.ack(message);
            }
        }
        Facts.say(missing.isEmpty() ? "round" : "failed", "round", round, "missing", missing.size());
    }

    private static SendReceipt sent(Producer producer, MessageBuilder message, String body) throws Exception {
        return producer.send(message.setBody(body.getBytes(StandardCharsets.UTF_8)).build());
    }

    private static long millis(long began) {
        return (System.nanoTime() - began) / 1_000_000;
    }
}
