import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Prints the results of RocketMQ's filter. Each line of the input is an expression and the properties of some messages,
 * in hex, separated by tabs. Each line of the output has a letter for each message (T, F, N for null, E for an error),
 * or is C if the expression does not compile.
 */
public final class Verdicts {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(new PrintStream(OutputStream.nullOutputStream())); // the parser prints to it
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(verdicts(line.split("\t", -1)));
        }
        out.flush();
    }

    private static String verdicts(String[] parts) {
        Expression expression;
        try {
            expression = SelectorParser.parse(text(parts[0]));
        } catch (Throwable error) {
            return "C";
        }
        StringBuilder verdicts = new StringBuilder();
        for (int i = 1; i < parts.length; i++) {
            verdicts.append(verdict(expression, properties(text(parts[i]))));
        }
        return verdicts.toString();
    }

    private static char verdict(Expression expression, Map<String, String> properties) {
        try {
            Object value = expression.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return null;
                }
            });
            return value == null ? 'N' : value.equals(true) ? 'T' : 'F';
        } catch (Throwable error) {
            return 'E';
        }
    }

    private static Map<String, String> properties(String text) {
        Map<String, String> properties = new HashMap<>();
        for (String entry : text.split("\u0002")) {
            int at = entry.indexOf('\u0001');
            if (at > 0 && at < entry.length() - 1) {
                properties.put(entry.substring(0, at), entry.substring(at + 1));
            }
        }
        return properties;
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
