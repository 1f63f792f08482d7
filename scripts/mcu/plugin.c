/* A QEMU plugin that weighs what a Cortex-M4 executes.
 *
 * Counts instructions, models cycles, watches the stack, and fingerprints the
 * path that a piece of code takes. A guest tells where pieces begin with the
 * hint `dbg #n`, which does nothing on the processor.
 *
 *   out=FILE      one line per mark and one at the end:
 *                 n instructions cycles lowest-store fingerprint divisions
 *   stack=LO:HI   stores between these (hex) count as the stack's
 *   series=FILE   the lowest store to the stack, every period=N instructions:
 *                 instructions mark lowest
 *   hist=FILE     per block: address executions instructions cycles-in-all
 *   span=N        hist from the N-th mark 1 to the first mark 5 behind it
 *   trace=1       fingerprint: every block and every address of every access
 *
 * The emulator's plugin interface is declared here, because Debian ships no
 * header for it: version 1 of it, which QEMU 6.0 to 8.2 have. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t id_t_;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint32_t meminfo;
typedef void (*exec_cb)(unsigned, void *);
typedef void (*mem_cb)(unsigned, meminfo, uint64_t, void *);
enum { NO_REGS = 0, MEM_RW = 3 };

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
void qemu_plugin_register_vcpu_tb_trans_cb(id_t_, void (*)(id_t_, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, exec_cb, int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, mem_cb, int, int, void *);
bool qemu_plugin_mem_is_store(meminfo);
void qemu_plugin_register_atexit_cb(id_t_, void (*)(id_t_, void *), void *);

/* A run of instructions without a branch or a mark inside. */
struct run {
    uint64_t start, end, times, refills;
    unsigned instructions, cycles, divisions;
    struct run *next;
};

static struct run *runs;
static uint64_t instructions, cycles, divisions;
static uint64_t expected; /* where execution goes without a branch */
static uint64_t fingerprint = 1;
static uint64_t stack_low, stack_high, lowest, lowest_of_period, period = 1000, next_period;
static unsigned current_mark;
static unsigned span, wakes;
static bool trace;
static FILE *out, *series;
static char *hist;

static void mix(uint64_t value)
{
    fingerprint = (fingerprint ^ value) * 0x9e3779b97f4a7c15;
    fingerprint ^= fingerprint >> 29;
}

/* Cycles of the Cortex-M4 (its technical reference manual, table 3-1) with
 * memory that never waits. A branch that is taken refills the pipeline: two
 * more. The first of several loads or stores in a row takes two, the others
 * one. A division takes 2 to 12: seven. `*access` says it is one load or
 * store. */
static unsigned cost(uint32_t first, uint32_t second, bool wide, bool *access)
{
    *access = false;
    if (!wide) {
        unsigned top4 = first >> 12, top7 = first >> 9;
        if (top7 == 0x5a)
            return 1 + __builtin_popcount(first & 0x1ff); /* push */
        if (top7 == 0x5e)
            return 1 + __builtin_popcount(first & 0x1ff) + (first & 0x100 ? 2 : 0); /* pop */
        if (top4 == 0xc)
            return 1 + __builtin_popcount(first & 0xff); /* several registers */
        if (first >> 11 == 9 || (top4 >= 5 && top4 <= 9)) {
            *access = true;
            return 2;
        }
        return 1;
    }
    unsigned top7 = first >> 9;
    if (top7 == 0x74) {
        if (!(first & 0x40))
            return 1 + __builtin_popcount(second); /* several registers */
        return (first & 0xfff0) == 0xe8d0 ? 4 : 3; /* table branch, pairs */
    }
    if (top7 == 0x7c) {
        *access = true;
        return 2;
    }
    if ((first & 0xffd0) == 0xfb90)
        return 7;
    if ((first & 0xfff0) == 0xfb00 && (second & 0xf000) != 0xf000)
        return 2; /* multiply and add */
    if ((first & 0xffe0) == 0xec40)
        return 1;
    if (top7 == 0x76) /* floating point: one register, or several */
        return (first & 0x120) == 0x100 ? 2 : 1 + (second & 0xff);
    return 1; /* long multiplications too */
}

static void sample(void)
{
    if (!series || instructions < next_period)
        return;
    fprintf(series, "%" PRIu64 " %u %" PRIx64 "\n", instructions, current_mark, lowest_of_period);
    lowest_of_period = stack_high;
    next_period = instructions - instructions % period + period;
}

static void on_run(unsigned cpu, void *data)
{
    struct run *run = data;
    (void)cpu;
    sample();
    if (run->start != expected) {
        cycles += 2;
        run->refills++;
    }
    instructions += run->instructions;
    cycles += run->cycles;
    divisions += run->divisions;
    run->times++;
    expected = run->end;
    if (trace)
        mix(run->start);
}

static void on_access(unsigned cpu, meminfo info, uint64_t address, void *data)
{
    (void)cpu, (void)data;
    if (trace)
        mix(address);
    if (qemu_plugin_mem_is_store(info) && address >= stack_low && address < stack_high) {
        if (address < lowest)
            lowest = address;
        if (address < lowest_of_period)
            lowest_of_period = address;
    }
}

static void line(unsigned mark)
{
    if (out)
        fprintf(out, "%u %" PRIu64 " %" PRIu64 " %" PRIx64 " %016" PRIx64 " %" PRIu64 "\n", mark,
                instructions, cycles, lowest, fingerprint, divisions);
    lowest = stack_high;
    fingerprint = 1;
}

static void write_hist(void)
{
    FILE *file = hist ? fopen(hist, "w") : NULL;
    hist = NULL;
    for (struct run *run = runs; file && run; run = run->next)
        if (run->times)
            fprintf(file, "%" PRIx64 " %" PRIu64 " %u %" PRIu64 "\n", run->start, run->times,
                    run->instructions, run->times * run->cycles + 2 * run->refills);
    if (file)
        fclose(file);
}

static void on_mark(unsigned cpu, void *data)
{
    (void)cpu;
    current_mark = (unsigned)(uintptr_t)data;
    line(current_mark);
    if (!span)
        return;
    if (current_mark == 1 && ++wakes == span)
        for (struct run *run = runs; run; run = run->next)
            run->times = run->refills = 0;
    if (current_mark == 5 && wakes == span)
        write_hist();
}

static void on_translate(id_t_ id, struct qemu_plugin_tb *tb)
{
    struct run *run = NULL;
    bool before = false;
    size_t count = qemu_plugin_tb_n_insns(tb);
    (void)id;
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        size_t size = qemu_plugin_insn_size(insn);
        const uint8_t *bytes = qemu_plugin_insn_data(insn);
        uint64_t address = qemu_plugin_insn_vaddr(insn);
        uint32_t first = bytes[0] | bytes[1] << 8;
        uint32_t second = size == 4 ? (uint32_t)(bytes[2] | bytes[3] << 8) : 0;
        if (first == 0xf3af && (second & 0xfff0) == 0x80f0) {
            uintptr_t mark = second & 15;
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, NO_REGS, (void *)mark);
            if (run)
                run->end = address + size;
            run = NULL;
            continue;
        }
        if (!run) {
            run = calloc(1, sizeof *run);
            run->start = address;
            run->next = runs;
            runs = run;
            before = false;
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_run, NO_REGS, run);
        }
        bool access;
        unsigned cost_ = cost(first, second, size == 4, &access);
        run->cycles += access && before ? 1 : cost_;
        before = access;
        run->divisions += (first & 0xffd0) == 0xfb90 && size == 4;
        run->instructions++;
        run->end = address + size;
        if (trace || stack_high)
            qemu_plugin_register_vcpu_mem_cb(insn, on_access, NO_REGS, MEM_RW, NULL);
    }
}

static void on_exit_(id_t_ id, void *data)
{
    (void)id, (void)data;
    line(0);
    if (out)
        fclose(out);
    if (series)
        fclose(series);
    write_hist();
}

__attribute__((visibility("default"))) int
qemu_plugin_install(id_t_ id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return -1;
        *value++ = 0;
        if (!strcmp(argv[i], "out"))
            out = fopen(value, "w");
        else if (!strcmp(argv[i], "series"))
            series = fopen(value, "w");
        else if (!strcmp(argv[i], "hist"))
            hist = strdup(value);
        else if (!strcmp(argv[i], "span"))
            span = strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "trace"))
            trace = *value == '1' || !strcmp(value, "on");
        else if (!strcmp(argv[i], "period"))
            period = strtoull(value, NULL, 10);
        else if (!strcmp(argv[i], "stack") &&
                 sscanf(value, "%" SCNx64 ":%" SCNx64, &stack_low, &stack_high) == 2)
            lowest = lowest_of_period = stack_high;
        else
            return -1;
    }
    if (!period)
        return -1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_atexit_cb(id, on_exit_, NULL);
    return 0;
}
