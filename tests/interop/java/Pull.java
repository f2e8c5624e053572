import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a whole topic: how = pull (explicit offsets) | lite (subscribed) | assigned (lite, chosen queues). */
public final class Pull {
    private Pull() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        if (options.get("how").equals("pull")) {
            pull(options);
        } else {
            lite(options);
        }
        Facts.say("done");
        System.exit(0);
    }

    @SuppressWarnings("deprecation")
    private static void pull(Map<String, String> options) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(options.get("group"));
        Clients.prepare(consumer, options);
        consumer.start();
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(options.get("topic"))) {
            long least = consumer.minOffset(queue);
            long most = consumer.maxOffset(queue);
            Facts.say("queue", "queue", queue.getQueueId(), "broker", queue.getBrokerName(), "min", least, "max", most,
                "by_time_0", consumer.searchOffset(queue, 0L),
                "by_time_now", consumer.searchOffset(queue, System.currentTimeMillis() + 1000),
                "earliest", consumer.earliestMsgStoreTime(queue));
            for (long offset = least; offset < most;) {
                PullResult result = consumer.pull(queue, options.getOrDefault("tags", "*"), offset, 7);
                if (result.getPullStatus() == PullStatus.FOUND) {
                    for (MessageExt message : result.getMsgFoundList()) {
                        Facts.message("received", "pull", message);
                    }
                }
                if (result.getNextBeginOffset() <= offset) {
                    Facts.say("failed", "error", "no progress: " + result);
                    break;
                }
                offset = result.getNextBeginOffset();
            }
            PullResult beyond = consumer.pull(queue, "*", most + 100, 7);
            Facts.say("beyond", "status", beyond.getPullStatus(), "next_is_max", beyond.getNextBeginOffset() == most);
            consumer.updateConsumeOffset(queue, most);
            consumer.getOffsetStore().persist(queue);
            // The commit is one-way and Apache's broker may answer the query first.
            long committed = -1;
            for (int i = 0; i < 40 && committed != most; i++) {
                Thread.sleep(i == 0 ? 0 : 50);
                committed = consumer.fetchConsumeOffset(queue, true);
            }
            Facts.say("committed", "queue", queue.getQueueId(), "offset", committed, "max", most);
        }
        consumer.shutdown();
    }

    private static void lite(Map<String, String> options) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.get("group"));
        Clients.prepare(consumer, options);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        boolean assigned = options.get("how").equals("assigned");
        if (!assigned) {
            consumer.subscribe(options.get("topic"), "*");
        }
        consumer.start();
        if (assigned) {
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(options.get("topic")));
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                consumer.seekToBegin(queue);
            }
        }
        int left = Integer.parseInt(options.get("count"));
        long deadline = System.currentTimeMillis() + 40000;
        while (left > 0 && System.currentTimeMillis() < deadline) {
            Collection<MessageExt> messages = consumer.poll(1000);
            for (MessageExt message : messages) {
                Facts.message("received", "lite", message);
            }
            left -= messages.size();
        }
        consumer.commitSync();
        if (!assigned) {
            for (MessageQueue queue : consumer.assignment()) {
                Facts.say("committed", "queue", queue.getQueueId(), "offset", consumer.committed(queue));
            }
        }
        consumer.shutdown();
    }
}
