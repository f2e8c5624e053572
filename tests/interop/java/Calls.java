import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Calls methods of DefaultMQAdminExt and says each result as JSON. The option calls is a list of lists: the name
 * of a method and its arguments. The argument {"result": n} is what the n-th call gave.
 */
public final class Calls {
    private static final int DEEPEST = 12;

    private Calls() {
    }

    public static void main(String[] args) {
        try {
            call(Facts.options(args));
            Facts.say("done");
        } catch (Exception error) {
            Facts.say("failed", "error", error, "cause", error.getCause());
        }
        System.exit(0);
    }

    private static void call(Map<String, String> options) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Keys.hook(options), 20_000);
        admin.setNamesrvAddr(options.get("ns"));
        admin.setInstanceName("calls");
        admin.start();
        List<Object> results = new ArrayList<>();
        for (Object each : RemotingSerializable.fromJson(options.get("calls"), List.class)) {
            List<?> call = (List<?>) each;
            Object result;
            try {
                result = called(admin, (String) call.get(0), call.subList(1, call.size()), results);
            } catch (InvocationTargetException error) {
                result = error.getCause();
            } catch (IllegalArgumentException error) {
                result = error;  // an earlier call, whose result this one takes, has failed
            }
            results.add(result);
            Object found;
            try {
                found = plain(result, 0);
            } catch (RuntimeException error) {
                throw new IllegalStateException("the result of " + call, error);
            }
            Facts.say("result", "json", RemotingSerializable.toJson(Arrays.asList(found), false));
        }
        admin.shutdown();
    }

    private static Object called(DefaultMQAdminExt admin, String name, List<?> words, List<Object> results)
        throws Exception {
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals(name) && types.length == words.size()) {
                Object[] arguments = new Object[types.length];
                for (int i = 0; i < types.length; i++) {
                    arguments[i] = argument(words.get(i), types[i], results);
                }
                return method.invoke(admin, arguments);
            }
        }
        throw new IllegalArgumentException("DefaultMQAdminExt has no " + name + " with " + words.size() + " arguments");
    }

    private static Object argument(Object word, Class<?> type, List<Object> results) {
        if (word instanceof Map && ((Map<?, ?>) word).containsKey("result")) {
            return results.get(((Number) ((Map<?, ?>) word).get("result")).intValue());
        }
        if (type == long.class) {
            return ((Number) word).longValue();
        }
        if (type == Set.class) {
            return new HashSet<>((List<?>) word);
        }
        if (word instanceof Map) {
            return RemotingSerializable.fromJson(RemotingSerializable.toJson(word, false), type);
        }
        return word;
    }

    /** The object as maps, lists, texts, numbers and booleans. */
    private static Object plain(Object value, int depth) throws IllegalAccessException {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return value instanceof Number && !(value instanceof Double) ? (Object) ((Number) value).longValue() : value;
        }
        if (value instanceof byte[]) {
            return new String((byte[]) value, StandardCharsets.UTF_8);
        }
        if (value instanceof Throwable) {
            return failure((Throwable) value);
        }
        if (value instanceof CharSequence || value instanceof Enum || value instanceof SocketAddress) {
            return value.toString();
        }
        if (depth > DEEPEST) {
            throw new IllegalArgumentException("nested too deep: " + value.getClass());
        }
        if (value instanceof Map) {
            return table((Map<?, ?>) value, depth);
        }
        if (value instanceof Collection) {
            return list((Collection<?>) value, depth);
        }
        // Other objects of the JDK, such as a source of chance, are no data.
        return value.getClass().getName().startsWith("java.") ? null : fields(value, depth);
    }

    private static Object failure(Throwable error) {
        Map<String, Object> found = new TreeMap<>();
        found.put("error", error.getClass().getSimpleName());
        found.put("message", String.valueOf(error.getMessage()));
        return found;
    }

    private static Object table(Map<?, ?> map, int depth) throws IllegalAccessException {
        Map<String, Object> found = new TreeMap<>();
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            Object key = plain(entry.getKey(), depth + 1);
            String name = key instanceof Map ? RemotingSerializable.toJson(key, false) : String.valueOf(key);
            found.put(name, plain(entry.getValue(), depth + 1));
        }
        return found;
    }

    private static Object list(Collection<?> values, int depth) throws IllegalAccessException {
        List<Object> found = new ArrayList<>();
        for (Object each : values) {
            found.add(plain(each, depth + 1));
        }
        if (values instanceof Set) {
            found.sort(Comparator.comparing(each -> RemotingSerializable.toJson(each, false)));
        }
        return found;
    }

    private static Object fields(Object value, int depth) throws IllegalAccessException {
        Map<String, Object> found = new TreeMap<>();
        for (Class<?> type = value.getClass(); type != Object.class; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    found.put(field.getName(), plain(field.get(value), depth + 1));
                }
            }
        }
        return found;
    }
}
