import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The roles of benchmarks/faults/load.py, implemented with Apache's clients and their default periods.
 *
 * <p>FaultLoad load NAME_SERVERS SEED: sends and consumes until a line "stop" arrives on standard input (senders
 * end, "stopped" is printed) or the input ends; "consume ROLE" starts one more consumer of the topic of that name.
 * FaultLoad reader NAME_SERVERS TOPIC: the counterpart of benchmarks/faults/reader.py. Times are seconds of the
 * machine's monotonic clock.
 */
public final class FaultLoad {
    private static final int PAUSE_MS = 20;
    private static volatile boolean sending = true;
    private static String names;

    private FaultLoad() {
    }

    public static void main(String[] args) throws Exception {
        names = args[1];
        if (args[0].equals("reader")) {
            read(args[2]);
            return;
        }
        load(Long.parseLong(args[2]));
        System.exit(0);
    }

    private static void load(long seed) throws Exception {
        for (String role : new String[] {"default", "once", "transaction", "delayed", "timer"}) {
            consume(role, role, false, false);
        }
        consume("ordered", "ordered", true, false);
        consume("backlog", "backlog", false, false);
        consume("backlog-ordered", "backlog", true, false);
        consume("pop", "pop", false, true);
        consume("backlog-pop", "backlog", false, true);
        List<Thread> senders = new ArrayList<>();
        DefaultMQProducer plain = producer("plain", 2);
        DefaultMQProducer once = producer("once", 0);
        DefaultMQProducer later = producer("later", 0);
        TransactionMQProducer deciding = new TransactionMQProducer("deciding");
        deciding.setNamesrvAddr(names);
        deciding.setRetryTimesWhenSendFailed(0);
        deciding.setTransactionListener(new Decisions());
        deciding.start();
        Random random = new Random(seed);
        senders.add(paced("default", 30, number -> send("default", number, plain, message("default", number), 0)));
        senders.add(paced("once", 15, number -> send("once", number, once, message("once", number), 0)));
        senders.add(paced("pop", 10, number -> send("pop", number, plain, message("pop", number), 0)));
        senders.add(paced("ordered", 15, number -> note("ordered", number, true, 0, () -> plain.send(
            message("ordered", number), (queues, it, key) -> queues.get((Integer) key % queues.size()), number % 8))));
        senders.add(paced("delayed", 8, number -> {
            boolean first = random.nextBoolean();
            Message message = message("delayed", number);
            message.setDelayTimeLevel(first ? 2 : 3);
            send("delayed", number, later, message, first ? 5 : 10);
        }));
        senders.add(paced("timer", 8, number -> {
            double delay = 3 + Math.round(random.nextDouble() * 9000) / 1000.0;
            Message message = message("timer", number);
            message.setDelayTimeMs(Math.round(delay * 1000));
            send("timer", number, later, message, delay);
        }));
        senders.add(paced("transaction", 8, number ->
            note("transaction", number, number % 10 != 3, 0,
                () -> deciding.sendMessageInTransaction(message("transaction", number), number))));
        say("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.startsWith("consume ")) {
                consume(line.substring(8), line.substring(8), false, false);
            } else {
                sending = false;
                for (Thread sender : senders) {
                    sender.join();
                }
                say("stopped");
            }
        }
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    // -- sending

    private interface Work {
        void run(int number) throws Exception;
    }

    private interface Sending {
        SendResult run() throws Exception;
    }

    private static Message message(String topic, int number) {
        return new Message(topic, Integer.toString(number).getBytes(StandardCharsets.UTF_8));
    }

    private static DefaultMQProducer producer(String group, int retries) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(names);
        producer.setRetryTimesWhenSendFailed(retries);
        producer.start();
        return producer;
    }

    /** Sends at a rate; a sender that is delayed sends fewer messages. */
    private static Thread paced(String role, double rate, Work work) {
        Thread thread = new Thread(() -> {
            double due = now();
            for (int number = 0; sending; number++) {
                try {
                    work.run(number);
                    due = Math.max(due + 1 / rate, now());
                    Thread.sleep(Math.max(0, (long) ((due - now()) * 1000)));
                } catch (Exception broken) {
                    throw new IllegalStateException(role, broken);
                }
            }
        }, role);
        thread.start();
        return thread;
    }

    private static void send(String role, int number, DefaultMQProducer producer, Message message, double delay) {
        note(role, number, true, delay, () -> producer.send(message));
    }

    private static void note(String role, int number, boolean wanted, double delay, Sending work) {
        double begun = now();
        String broker = "-";
        String error = "-";
        String place = "-1 -1";
        boolean stored = false;
        try {
            SendResult result = work.run();
            broker = result.getMessageQueue().getBrokerName();
            place = result.getMessageQueue().getQueueId() + " " + result.getQueueOffset();
            stored = result.getSendStatus() == SendStatus.SEND_OK;
            error = result.getSendStatus().name();
        } catch (Exception failed) {
            error = failed.getClass().getSimpleName();
        }
        say(String.join(" ", "S", role, "" + number, "" + begun, "" + now(), stored ? "1" : "0", wanted ? "1" : "0",
            "" + delay, broker, error, place));
    }

    /** Of ten transactions seven commit at once, one rolls back, and two are left open and commit at their check. */
    private static final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            int number = (Integer) argument;
            if (number % 10 == 3) {
                return LocalTransactionState.ROLLBACK_MESSAGE;
            }
            return number % 5 == 0 ? LocalTransactionState.UNKNOW : LocalTransactionState.COMMIT_MESSAGE;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int number = number(message);
            say("C " + number + " " + now());
            return number % 10 == 3 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    // -- consuming

    private static int number(MessageExt message) {
        return Integer.parseInt(new String(message.getBody(), StandardCharsets.UTF_8));
    }

    /** Consumes a topic; consumers of the backlog pause for each message. */
    private static void consume(String role, String topic, boolean ordered, boolean pop) throws Exception {
        DefaultMQPushConsumer consumer = consumer(role, topic);
        if (topic.equals("backlog")) {
            slowly(consumer);
        }
        if (pop) {
            consumer.setClientRebalance(false);
            consumer.setPopInvisibleTime(15000);
        }
        int pause = topic.equals("backlog") ? PAUSE_MS : 0;
        if (ordered) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                received(role, messages, pause);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                received(role, messages, pause);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
    }

    private static DefaultMQPushConsumer consumer(String role, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(role + "_group");
        consumer.setNamesrvAddr(names);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static void slowly(DefaultMQPushConsumer consumer) {
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.setPullBatchSize(8);
        consumer.setPullThresholdForQueue(8);
        consumer.setPopBatchNums(8);
    }

    private static void received(String role, List<MessageExt> messages, int pause) {
        for (MessageExt message : messages) {
            say("R " + role + " " + number(message) + " " + now() + " " + message.getBrokerName() + " "
                + message.getQueueId() + " " + message.getQueueOffset());
            pause(pause);
        }
    }

    private static void pause(int millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static void read(String topic) throws Exception {
        DefaultMQPushConsumer consumer = consumer("restarting", topic);
        slowly(consumer);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                say(number(message) + " " + message.getBrokerName() + " " + message.getQueueId() + " "
                    + message.getQueueOffset());
                pause(PAUSE_MS);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        say("ready");
        Thread.sleep(Long.MAX_VALUE);
    }
}
