import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends three half messages to a topic: one is committed, one rolled back, one left open until the broker asks. */
public final class Transact {
    private static final CountDownLatch ASKED = new CountDownLatch(1);

    private Transact() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        TransactionMQProducer producer = new TransactionMQProducer("interop_transactions", Keys.hook(options));
        Clients.prepare(producer, options);
        producer.setSendMsgTimeout(10000);
        producer.setTransactionListener(new Decisions());
        producer.start();
        for (String fate : new String[] {"commit", "rollback", "unknown"}) {
            Message message = new Message(options.get("topic"), "even", fate, fate.getBytes(StandardCharsets.UTF_8));
            TransactionSendResult result = producer.sendMessageInTransaction(message, fate);
            Facts.say("sent", "status", result.getSendStatus(), "state", result.getLocalTransactionState());
        }
        boolean asked = ASKED.await(Integer.parseInt(options.get("seconds")), TimeUnit.SECONDS);
        Thread.sleep(1000);
        producer.shutdown();
        Facts.say(asked ? "done" : "timeout");
        System.exit(0);
    }

    private static final class Decisions implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object fate) {
            if (fate.equals("commit")) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            return fate.equals("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String fate = new String(message.getBody(), StandardCharsets.UTF_8);
            Facts.say("asked", "body", fate);
            if (fate.equals("unknown")) {
                ASKED.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
            // The broker may ask once more about one that it has not yet marked as settled.
            return fate.equals("commit") ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }
}
