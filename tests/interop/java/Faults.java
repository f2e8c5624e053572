import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends from several threads for a while, and tells of each send when it began, how long it took and where it went. */
public final class Faults {
    private Faults() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        // The setter for it is missing in 4.9, which this compiles against too.
        System.setProperty("com.rocketmq.startDetectorEnable", options.get("detector"));
        DefaultMQProducer producer = new DefaultMQProducer("faults_java");
        producer.setNamesrvAddr(options.get("ns"));
        producer.setSendLatencyFaultEnable(Boolean.parseBoolean(options.get("avoid")));
        producer.start();
        // One message ahead, so that the route is known and connections are open when the clock starts.
        producer.send(new Message(options.get("topic"), new byte[128]));
        Facts.say("started");
        long begun = System.nanoTime();
        long end = begun + Long.parseLong(options.get("millis")) * 1_000_000L;
        int threads = Integer.parseInt(options.get("senders"));
        CountDownLatch running = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            new Thread(() -> {
                while (System.nanoTime() < end) {
                    sendOne(producer, options.get("topic"), begun);
                    pause(Long.parseLong(options.get("pause")));
                }
                running.countDown();
            }).start();
        }
        running.await();
        producer.shutdown();
        Facts.say("done");
        System.exit(0);
    }

    private static void sendOne(DefaultMQProducer producer, String topic, long begun) {
        long start = System.nanoTime();
        String broker = "";
        String id = "";
        try {
            SendResult result = producer.send(new Message(topic, new byte[128]));
            broker = result.getMessageQueue().getBrokerName();
            id = result.getMsgId();
        } catch (Exception failed) {
            // Told by the empty broker name.
        }
        long took = System.nanoTime() - start;
        Facts.say("send", "at", (start - begun) / 1e9, "took", took / 1e9, "broker", broker, "id", id);
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
