/* The example on a Cortex-M4 without a system: a board's maker fills in the
 * network, the clock and the random numbers, which are weak here and do
 * nothing. */

#include "device.h"

__attribute__((weak)) void board_send(const uint8_t *data, size_t len) {
    (void)data;
    (void)len;
}
__attribute__((weak)) size_t board_receive(uint8_t *data, size_t room) {
    (void)data;
    (void)room;
    return 0;
}
__attribute__((weak)) uint32_t board_ms(void) { return 0; }
/* Without a source of random bytes nothing may be made secret of them. */
__attribute__((weak)) bool board_random(uint8_t *data, size_t len) {
    (void)data;
    (void)len;
    return false;
}
__attribute__((weak)) void board_sleep(uint32_t ms) {
    (void)ms;
    __asm__ volatile("wfi");
}

static void send_datagram(void *context, const uint8_t *data, size_t len) {
    (void)context;
    board_send(data, len);
}
static size_t receive_datagram(void *context, uint8_t *data, size_t room) {
    (void)context;
    return board_receive(data, room);
}
static uint32_t now(void *context) {
    (void)context;
    return board_ms();
}
static bool fill_random(void *context, uint8_t *data, size_t len) {
    (void)context;
    return board_random(data, len);
}

const dunlin_port *device_port(void) {
    static const dunlin_port port = {.send = send_datagram,
                                     .receive = receive_datagram,
                                     .now = now,
                                     .random = fill_random,
                                     .event = device_event};
    return &port;
}

void device_wait(uint32_t ms) { board_sleep(ms); }

/* Memory that keeps its content in deep sleep would be here. */
static uint8_t kept[320];
static size_t kept_len;
static uint32_t kept_at;

void device_store(const uint8_t *ticket, size_t len) {
    for (size_t i = 0; i < len && i < sizeof kept; i++)
        kept[i] = ticket[i];
    kept_len = len <= sizeof kept ? len : 0;
    kept_at = board_ms();
}

size_t device_load(uint8_t *ticket, size_t room, uint32_t *age_ms) {
    size_t len = kept_len <= room ? kept_len : 0;
    for (size_t i = 0; i < len; i++)
        ticket[i] = kept[i];
    *age_ms = board_ms() - kept_at;
    return len;
}

/* The key of the broker, given at the making of the device. */
__attribute__((weak)) const uint8_t broker_key[65] = {4};
size_t device_key(uint8_t key[65]) {
    for (size_t i = 0; i < 65; i++)
        key[i] = broker_key[i];
    return 65;
}

const char *device_name(void) { return "broker.example.net"; }
const char *device_reading(void) { return "21.5"; }
void device_log(const char *what, unsigned number) {
    (void)what;
    (void)number;
}

int main(void) { return device_main(); }
