import java.lang.reflect.Field;
import java.lang.reflect.Modifier;

/** Prints class, name and value of each field of a new object of each class in the arguments, separated by tabs. */
public final class Defaults {
    public static void main(String[] classes) throws Exception {
        for (String name : classes) {
            Object config = Class.forName(name).getDeclaredConstructor().newInstance();
            for (Class<?> kind = config.getClass(); kind != Object.class; kind = kind.getSuperclass()) {
                for (Field field : kind.getDeclaredFields()) {
                    if (!Modifier.isStatic(field.getModifiers())) {
                        field.setAccessible(true);
                        Object value = field.get(config);
                        System.out.println(name + "\t" + field.getName() + "\t" + (value == null ? "" : value));
                    }
                }
            }
        }
    }
}
