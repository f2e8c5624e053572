import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Push consumers of one group in this process receive `count` messages.
 * Options: consumers, tags, orderly, broadcast, pop, sql, ak, sk, trace, refuse (deliveries of each message
 * that are refused first), level (the delay level until the next delivery of a refused one), seconds.
 */
public final class Receive {
    private static final Semaphore RECEIVED = new Semaphore(0);

    private Receive() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(options.getOrDefault("consumers", "1")); i++) {
            try {
                consumers.add(start(options, "consumer-" + i));
            } catch (MQClientException refused) {
                Facts.say("not started");
                Facts.say("done");
                System.exit(0);
            }
        }
        Facts.say("ready");
        int count = Integer.parseInt(options.get("count"));
        int seconds = Integer.parseInt(options.getOrDefault("seconds", "120"));
        boolean all = RECEIVED.tryAcquire(count, seconds, TimeUnit.SECONDS);
        // A moment more, in which a duplicate would show.
        Thread.sleep(Integer.parseInt(options.getOrDefault("linger", "500")));
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        Facts.say(all ? "done" : "timeout");
        System.exit(0);
    }

    private static DefaultMQPushConsumer start(Map<String, String> options, String who) throws Exception {
        int refuse = Integer.parseInt(options.getOrDefault("refuse", "0"));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"), Keys.hook(options),
            new AllocateMessageQueueAveragely(), options.containsKey("trace"), null);
        Clients.prepare(consumer, options);
        consumer.setInstanceName(who);
        // Instead of 5 s: cells wait for commits.
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (options.containsKey("broadcast")) {
            // The type has another package in 4.9 and is not named for that reason.
            consumer.setMessageModel(Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        if (options.containsKey("retries")) {
            consumer.setMaxReconsumeTimes(Integer.parseInt(options.get("retries")));
        }
        if (options.containsKey("sql")) {
            consumer.subscribe(options.get("topic"), MessageSelector.bySql(options.get("sql")));
        } else {
            consumer.subscribe(options.get("topic"), options.getOrDefault("tags", "*"));
        }
        if (options.containsKey("pop")) {
            // The broker shares the queues, in the mode that setConsumeMode gave the group; 4.9 has no such method.
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        if (options.containsKey("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                accept(who, messages, refuse) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            int level = Integer.parseInt(options.getOrDefault("level", "0"));
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(level);
                return accept(who, messages, refuse) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        return consumer;
    }

    private static boolean accept(String who, List<MessageExt> messages, int refuse) {
        boolean accepted = true;
        for (MessageExt message : messages) {
            boolean refused = message.getReconsumeTimes() < refuse;
            Facts.message(refused ? "refused" : "received", who, message);
            accepted &= !refused;
        }
        if (accepted) {
            RECEIVED.release(messages.size());
        }
        return accepted;
    }
}
