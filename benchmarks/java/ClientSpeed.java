import java.lang.management.ManagementFactory;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Measures the speed of Apache's Java client: ClientSpeed NAME_SERVER TOPIC WAY WARMUP MESSAGES SECONDS, where
 * WAY is single (one in flight), many (256 in flight), batch (auto-batch, 4096 in flight), consume or
 * consume_batch (lists of up to 32).
 * A sender warms up with rounds of WARMUP messages for SECONDS, a consumer with WARMUP messages.
 * Prints the seconds and this process's CPU seconds for the messages after the warm-up.
 */
public final class ClientSpeed {
    private static final byte[] BODY = new byte[128];
    private static final AtomicLong FAILED = new AtomicLong();

    private ClientSpeed() {
    }

    public static void main(String[] args) throws Exception {
        int warmup = Integer.parseInt(args[3]);
        int messages = Integer.parseInt(args[4]);
        if (args[2].startsWith("consume")) {
            consume(args[0], args[1], warmup, messages, args[2].equals("consume_batch") ? 32 : 1);
        } else {
            send(args[0], args[1], args[2], warmup, messages, Integer.parseInt(args[5]));
        }
        System.exit(0);
    }

    private static double cpuSeconds() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime() / 1e9;
    }

    private static void report(double cpu, long begin) {
        System.out.printf(
            "{\"seconds\": %.6f, \"cpu_seconds\": %.6f}%n",
            (System.nanoTime() - begin) / 1e9, cpuSeconds() - cpu);
        if (FAILED.get() > 0) {
            System.err.println(FAILED.get() + " sends failed");
            System.exit(1);
        }
    }

    private static void send(String names, String topic, String way, int warmup, int messages, int seconds)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("client_speed_producer");
        producer.setNamesrvAddr(names);
        producer.setSendMsgTimeout(10000);
        if (way.equals("batch")) {
            producer.setAutoBatch(true);
        }
        producer.start();
        for (long start = System.nanoTime(); System.nanoTime() - start < seconds * 1_000_000_000L;) {
            run(producer, topic, way, warmup);
        }
        double cpu = cpuSeconds();
        long begin = System.nanoTime();
        run(producer, topic, way, messages);
        report(cpu, begin);
    }

    private static void run(DefaultMQProducer producer, String topic, String way, int messages) throws Exception {
        if (way.equals("single")) {
            for (int i = 0; i < messages; i++) {
                producer.send(new Message(topic, BODY));
            }
            return;
        }
        int limit = way.equals("many") ? 256 : 4096;
        Semaphore inFlight = new Semaphore(limit);
        SendCallback answered = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                inFlight.release();
            }

            @Override
            public void onException(Throwable error) {
                FAILED.incrementAndGet();
                inFlight.release();
            }
        };
        for (int i = 0; i < messages; i++) {
            inFlight.acquire();
            producer.send(new Message(topic, BODY), answered);
        }
        inFlight.acquire(limit);
    }

    private static void consume(String names, String topic, int warmup, int messages, int batch)
        throws Exception {
        AtomicLong count = new AtomicLong();
        Semaphore enough = new Semaphore(0);
        double[] cpu = new double[1];
        long[] begin = new long[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("client_speed_java_" + System.nanoTime());
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            long now = count.addAndGet(list.size());
            if (now >= warmup && now - list.size() < warmup) {
                cpu[0] = cpuSeconds();
                begin[0] = System.nanoTime();
            }
            if (now >= warmup + messages && now - list.size() < warmup + messages) {
                report(cpu[0], begin[0]);
                enough.release();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        enough.acquire();
    }
}
