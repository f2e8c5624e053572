import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;

/** What the clients of all programs have in common. */
final class Clients {
    private Clients() {
    }

    /**
     * Name servers are asked with patience and often, instead of for 3 s and each 30 s: on a busy machine answers are
     * late, and retry topics are made while a client runs.
     */
    static void prepare(ClientConfig client, Map<String, String> options) {
        client.setNamesrvAddr(options.get("ns"));
        client.setMqClientApiTimeout(30000);
        client.setPollNameServerInterval(1000);
    }
}
