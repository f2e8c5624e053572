import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs one mqadmin command per line of standard input (fields separated by tabs), in one JVM. */
public final class Admin {
    private Admin() {
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            MQAdminStartup.main0(line.split("\t"), null);
            System.out.println("=== end of command");
            System.out.flush();
        }
        System.exit(0);
    }
}
