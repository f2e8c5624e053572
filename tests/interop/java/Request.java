import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Request and reply: a producer asks through a topic, a consumer answers through the broker. */
public final class Request {
    private Request() {
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> options = Facts.options(args);
        DefaultMQProducer replier = new DefaultMQProducer("interop_replier");
        Clients.prepare(replier, options);
        replier.setInstanceName("replier");
        replier.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.get("group"));
        Clients.prepare(consumer, options);
        consumer.setInstanceName("replier");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullTimeDelayMillsWhenException(1000);
        consumer.subscribe(options.get("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                answer(replier, message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("interop_requester");
        Clients.prepare(producer, options);
        producer.setInstanceName("requester");
        producer.start();
        for (int i = 0; i < Integer.parseInt(options.get("count")); i++) {
            byte[] body = ("question " + i).getBytes(StandardCharsets.UTF_8);
            Message reply = producer.request(new Message(options.get("topic"), body), 40000);
            Facts.say("reply", "body", new String(reply.getBody(), StandardCharsets.UTF_8));
        }
        // The last answer may reach the one who asked before its sender has heard that it was taken.
        Thread.sleep(1000);
        consumer.shutdown();
        producer.shutdown();
        replier.shutdown();
        Facts.say("done");
        System.exit(0);
    }

    private static void answer(DefaultMQProducer replier, MessageExt message) {
        String body = "answer to " + new String(message.getBody(), StandardCharsets.UTF_8);
        try {
            replier.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)), 3000);
        } catch (Exception error) {
            Facts.say("failed", "error", error);
        }
    }
}
