/* The example on a chip without a system: it reports, sleeps, and begins again
 * with a reset. What the chip is, is behind board.h. */

#include "board.h"
#include "device.h"

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
void device_store(const uint8_t *ticket, size_t len) { board_store(ticket, len); }
size_t device_load(uint8_t *ticket, size_t room, uint32_t *age_ms) {
    return board_load(ticket, room, age_ms);
}

size_t device_key(uint8_t key[65]) {
    const uint8_t *known = board_settings().key;
    for (size_t i = 0; known && i < 65; i++)
        key[i] = known[i];
    return known ? 65 : 0;
}

dunlin_bytes device_name(void) {
    struct board_settings settings = board_settings();
    dunlin_bytes name = {settings.name, settings.name_len};
    return name;
}

dunlin_bytes device_certificates(void) {
    struct board_settings settings = board_settings();
    dunlin_bytes certificates = {settings.certificates, settings.certificates_len};
    return certificates;
}

dunlin_bytes device_private_key(void) {
    struct board_settings settings = board_settings();
    dunlin_bytes key = {settings.private_key, settings.private_key ? 32 : 0};
    return key;
}

const char *device_reading(void) { return "21.5"; }

static void print_number(unsigned number) {
    if (number > 9)
        print_number(number / 10);
    board_print((uint8_t)('0' + number % 10));
}

void device_log(const char *what, unsigned number) {
    while (*what)
        board_print((uint8_t)*what++);
    board_print(':');
    board_print(' ');
    print_number(number);
    board_print('\n');
}

void device_end(dunlin_code code, uint8_t reason) {
    device_log("code", code);
    if (reason)
        device_log("reason", reason);
}

int main(void) {
    if (board_begin())
        device_main();
    else
        device_log("no network", 0);
    board_rest();
}
