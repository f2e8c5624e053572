import java.util.Map;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The keys of a program: options ak and sk. */
final class Keys {
    private Keys() {
    }

    /** Apache's hook that signs each request; null without keys. */
    static RPCHook hook(Map<String, String> options) {
        if (!options.containsKey("ak")) {
            return null;
        }
        return new AclClientRPCHook(new SessionCredentials(options.get("ak"), options.get("sk")));
    }
}
