//! Runs the cases against a broker, some at the same time, and prints a line for
//! each: `ok ID`, `not ok ID: reason`, `skip ID: reason`.
package wire;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

final class Main {
    /** Cases that run at the same time; most of them wait. */
    private static final int WORKERS = 8;

    private Main() {}

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        boolean all = args[1].equals("all");
        String only = args.length > 2 ? args[2] : "";
        Case.Cases cases = new Case.Cases();
        Types.add(cases);
        Transport.add(cases);
        Sessions.add(cases);
        Links.add(cases);
        Transfers.add(cases);
        Settling.add(cases);
        Messaging.add(cases);
        Termini.add(cases);
        Transactions.add(cases);
        Security.add(cases);
        ExecutorService pool = Executors.newFixedThreadPool(WORKERS);
        List<Future<String>> lines = new ArrayList<>();
        for (Case it : cases.all) {
            if (it.id().contains(only)) lines.add(pool.submit(task(it, port, all)));
        }
        for (Future<String> line : lines) System.out.println(line.get());
        System.exit(0);
    }

    private static Callable<String> task(Case it, int port, boolean all) {
        return () -> {
            if (it.slow() && !all) return "skip " + it.id() + ": it takes a minute";
            try (Wire wire = Wire.dial(port)) {
                it.body().run(wire);
                wire.finish();
                return "ok " + it.id();
            } catch (Throwable error) {
                return "not ok " + it.id() + ": " + reason(error);
            }
        };
    }

    private static String reason(Throwable error) {
        StringBuilder place = new StringBuilder();
        for (StackTraceElement frame : error.getStackTrace()) {
            if (frame.getClassName().startsWith("wire.") && !frame.getClassName().equals("wire.Main")) {
                place.append(' ').append(frame.getFileName()).append(':').append(frame.getLineNumber());
            }
        }
        String text = (error instanceof AssertionError ? "" : error.getClass().getSimpleName() + " ")
            + error.getMessage();
        text = text.replaceAll("\\s+", " ");
        // What differs comes last in what the driver says.
        int end = text.lastIndexOf("Additional info");
        return (end < 0 ? text : text.substring(end)) + place;
    }
}
