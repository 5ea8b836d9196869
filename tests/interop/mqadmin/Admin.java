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
 * Runs many mqadmin commands in one process, because a process takes a second to start. A command is a line of
 * arguments, separated by tabs; an empty line lists all commands. The result is one line: the exit code (0 if the command
 * does not call exit), a tab, and the output on stdout and stderr, with line ends and backslashes escaped.
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
        interruptSleepersAtShutdown(Thread.currentThread());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ByteArrayOutputStream output = new ByteArrayOutputStream();
            int code = run(line.isEmpty() ? new String[0] : line.split("\t"), new PrintStream(output, true, StandardCharsets.UTF_8));
            out.println(code + "\t" + escaped(output.toString(StandardCharsets.UTF_8)));
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] command, PrintStream to) throws ReflectiveOperationException {
        clearCommands();
        System.setOut(to);
        System.setErr(to);
        try {
            MQAdminStartup.main0(command, null);
            return 0;
        } catch (Exit exit) {
            return exit.code;
        }
    }

    /** Each run registers all commands again, and some of the old ones refer to a client that has been shut down. */
    private static void clearCommands() throws ReflectiveOperationException {
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

    /** The shutdown of a 5.x client joins a thread that sleeps for up to 3 s, without interrupting it. */
    private static void interruptSleepersAtShutdown(Thread main) {
        Thread interrupter = new Thread(() -> {
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
        interrupter.setDaemon(true);
        interrupter.start();
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
