//! Runs `dunlin send` and `dunlin receive` against a server that
//! protonj2-test-driver plays, and prints a line for each case: `ok ID`,
//! `not ok ID: reason`. Arguments: the binary, and a part of the names that are run.
package own;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

final class Main {
    /** Cases that run at the same time; most of them wait. */
    private static final int WORKERS = 4;

    private Main() {}

    public static void main(String[] args) throws Exception {
        String only = args.length > 1 ? args[1] : "";
        ExecutorService pool = Executors.newFixedThreadPool(WORKERS);
        List<Future<String>> lines = new ArrayList<>();
        for (Case it : Cases.all()) {
            if (it.id().contains(only)) lines.add(pool.submit(() -> line(it, args[0])));
        }
        for (Future<String> line : lines) System.out.println(line.get());
        System.exit(0);
    }

    private static String line(Case it, String dunlin) {
        try {
            it.run(dunlin);
            return "ok " + it.id();
        } catch (Throwable error) {
            String text = error.getClass().getSimpleName() + " " + error.getMessage();
            return "not ok " + it.id() + ": " + text.replaceAll("\\s+", " ");
        }
    }
}
