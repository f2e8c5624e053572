import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageExt;

/** Tells the test that started us what happened: one line per fact, its fields URL-encoded. */
final class Facts {
    private Facts() {
    }

    /** Command line arguments of the form name=value. */
    static Map<String, String> options(String[] args) {
        Map<String, String> options = new HashMap<>();
        for (String arg : args) {
            int at = arg.indexOf('=');
            options.put(arg.substring(0, at), arg.substring(at + 1));
        }
        return options;
    }

    static synchronized void say(String fact, Object... namesAndValues) {
        StringBuilder line = new StringBuilder("fact=").append(fact);
        for (int i = 0; i < namesAndValues.length; i += 2) {
            String value = String.valueOf(namesAndValues[i + 1]);
            line.append('&').append(namesAndValues[i]).append('=');
            line.append(URLEncoder.encode(value, StandardCharsets.UTF_8));
        }
        System.out.println(line);
        System.out.flush();
    }

    static void message(String fact, String who, MessageExt message) {
        say(fact, "who", who, "topic", message.getTopic(), "body", new String(message.getBody(), StandardCharsets.UTF_8),
            "tags", message.getTags(), "keys", message.getKeys(), "flag", message.getFlag(),
            "colour", message.getUserProperty("colour"), "broker", message.getBrokerName(),
            "queue", message.getQueueId(), "offset", message.getQueueOffset(), "id", message.getMsgId(),
            "log", message.getCommitLogOffset(), "reconsumed", message.getReconsumeTimes(),
            "waited", message.getStoreTimestamp() - message.getBornTimestamp(), "born", message.getBornHostString(), "stored", message.getStoreHost());
    }
}
