import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * mqadmin, many commands in one process, since a process takes a second to start. A command is a line of arguments with
 * tabs between them; an empty line asks for a list of all commands. Its answer is a line as well: the exit code that it
 * asked for (0 if it asked for none), a tab, and what it printed on either stream, line ends and backslashes escaped.
 */
public final class Admin {
    private static final class Exit extends SecurityException {
        final int code;

        Exit(int code) {
            this.code = code;
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        trapExits();
        wakeSleepersAtShutdown(Thread.currentThread());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            int code = run(line.isEmpty() ? new String[0] : line.split("\t"), new PrintStream(said, true, StandardCharsets.UTF_8));
            out.println(code + "\t" + escaped(said.toString(StandardCharsets.UTF_8)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] command, PrintStream to) throws ReflectiveOperationException {
        forgetCommands();
        System.setOut(to);
        System.setErr(to);
        try {
            MQAdminStartup.main0(command, null);
            return 0;
        } catch (Exit exit) {
            return exit.code;
        }
    }

    /** Each run registers all commands once more, and some of the old ones hold a client that has been shut down. */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    @SuppressWarnings("removal")
    private static void trapExits() {
        System.setSecurityManager(new SecurityManager() {
            @Override
            public void checkExit(int code) {
                throw new Exit(code);
            }

            @Override
            public void checkPermission(Permission permission) {
            }
        });
    }

    /** The shutdown of a 5.x client waits for a thread of its own that sleeps for up to 3 s, and does not wake it. */
    private static void wakeSleepersAtShutdown(Thread main) {
        Thread waker = new Thread(() -> {
            while (true) {
                for (StackTraceElement frame : main.getStackTrace()) {
                    if (frame.getClassName().endsWith("ServiceThread") && frame.getMethodName().equals("shutdown")) {
                        interrupt("NettyEventExecutor");
                    }
                }
                try {
                    Thread.sleep(20);
                } catch (InterruptedException interrupted) {
                    return;
                }
            }
        });
        waker.setDaemon(true);
        waker.start();
    }

    private static void interrupt(String name) {
        Thread[] threads = new Thread[Thread.activeCount() + 16];
        int count = Thread.enumerate(threads);
        for (int at = 0; at < count; at++) {
            if (threads[at].getName().equals(name)) {
                threads[at].interrupt();
            }
        }
    }

    private static String escaped(String text) {
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "");
    }
}
