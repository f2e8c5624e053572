import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * The official Java client with default settings, with TLS: GrpcClient ROLE ENDPOINT TOPIC GROUP WARM_S SECONDS,
 * where ROLE is send (64 in flight) or consume (a push consumer). The time begins with the first message.
 * Prints "ready" when it works, "begin" WARM_S later, and after SECONDS more the number of messages, and
 * percentiles of the microseconds from the time in their bodies (System.nanoTime, 8 bytes) to the listener.
 */
public final class GrpcClient {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final int UNDER_WAY = 64;
    private static final int BODY_BYTES = 128;
    private static final int MOST = 4_000_000;
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final CountDownLatch FIRST = new CountDownLatch(1);

    private GrpcClient() {
    }

    public static void main(String[] args) throws Exception {
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args[1])
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        double warm = Double.parseDouble(args[4]);
        double seconds = Double.parseDouble(args[5]);
        if (args[0].equals("send")) {
            send(configuration, args[2], warm, seconds);
        } else {
            consume(configuration, args[2], args[3], warm, seconds);
        }
        if (FAILED.get() > 0) {
            System.err.println(FAILED.get() + " sends failed");
            Runtime.getRuntime().halt(1);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void send(ClientConfiguration configuration, String topic, double warm, double seconds)
            throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        byte[] body = new byte[BODY_BYTES];
        Thread thread = new Thread(() -> sendOn(producer, topic, body));
        thread.setDaemon(true);
        thread.start();
        FIRST.await(60, TimeUnit.SECONDS);
        measure(warm, seconds, null);
    }

    private static void sendOn(Producer producer, String topic, byte[] body) {
        Semaphore free = new Semaphore(UNDER_WAY);
        while (true) {
            free.acquireUninterruptibly();
            producer.sendAsync(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build())
                .whenComplete((receipt, error) -> {
                    (error == null ? COUNT : FAILED).incrementAndGet();
                    FIRST.countDown();
                    free.release();
                });
        }
    }

    private static void consume(ClientConfiguration configuration, String topic, String group, double warm,
            double seconds) throws Exception {
        long[] took = new long[MOST];
        MessageListener listener = message -> {
            ByteBuffer content = message.getBody();
            took[COUNT.getAndIncrement()] = System.nanoTime() - content.getLong();
            FIRST.countDown();
            return ConsumeResult.SUCCESS;
        };
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(listener).build();
        if (!FIRST.await(60, TimeUnit.SECONDS)) {
            System.err.println("no message within 60 s");
            Runtime.getRuntime().halt(1);
        }
        measure(warm, seconds, took);
    }

    private static void measure(double warm, double seconds, long[] took) throws Exception {
        System.out.println("ready");
        Thread.sleep((long) (warm * 1000));
        System.out.println("begin");
        int begun = COUNT.get();
        long since = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        int ended = COUNT.get();
        double lasted = (System.nanoTime() - since) / 1e9;
        double p50 = 0;
        double p99 = 0;
        if (took != null && ended > begun) {
            long[] some = Arrays.copyOfRange(took, begun, ended);
            Arrays.sort(some);
            p50 = some[some.length / 2] / 1e3;
            p99 = some[some.length * 99 / 100] / 1e3;
        }
        System.out.printf("{\"seconds\": %.6f, \"count\": %d, \"all\": %d, \"p50_us\": %.1f, \"p99_us\": %.1f}%n",
            lasted, ended - begun, ended, p50, p99);
    }
}
