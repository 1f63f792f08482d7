/* The first instructions of a Cortex-M4: its vectors, and memory as C wants it.
 * Interrupts wake the processor and are never taken, so that there is no
 * handler but that of faults. */

#include <stdint.h>

/* Places that mps2.ld gives. */
extern uint32_t _stack_start, __data, __data_end, __data_load, __bss, __bss_end;

int main(void);
void reset(void);

/* Coprocessors may be used, and system reset. */
#define CPACR (*(volatile uint32_t *)0xe000ed88)
#define AIRCR (*(volatile uint32_t *)0xe000ed0c)

static void fault(void) {
    AIRCR = 0x05fa0004;
    for (;;) {
    }
}

void reset(void) {
    CPACR |= 0xfu << 20;
    __asm__ volatile("dsb\n isb" ::: "memory");
    const uint32_t *from = &__data_load;
    for (uint32_t *to = &__data; to < &__data_end; to++)
        *to = *from++;
    for (uint32_t *to = &__bss; to < &__bss_end; to++)
        *to = 0;
    main();
    fault();
}

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vectors = {&_stack_start, {reset, fault, fault, fault, fault, fault}};
