/* What else the library can say: a will, a topic that is named by a number, and
 * the end of a subscription. It hears its own messages, and ends without a
 * word, so that the broker publishes the will. For posix.c. */

#include <string.h>

#include "device.h"

static uint64_t state[DUNLIN_STATE_SIZE / 8];
static uint8_t hello[768], handshake[2048], outgoing[512], incoming[512], datagram[1472], key[65];
static unsigned step;

static dunlin_bytes text(const char *s) {
    dunlin_bytes bytes = {(const uint8_t *)s, strlen(s)};
    return bytes;
}

#define ROOM(array) {(uint8_t *)(array), sizeof(array)}

/* What is to happen, one after the other. */
void device_event(void *context, const dunlin_event *event) {
    static const char *const names[] = {"", "connected", "message", "published", "subscribed",
                                        "unsubscribed", "rejected"};
    (void)context;
    if (event->kind == DUNLIN_KIND_MESSAGE)
        device_log("message of bytes", (unsigned)event->payload.len);
    else
        device_log(names[event->kind], event->reason);
    step++;
}

static dunlin_code say(dunlin_client *client, const char *what) {
    dunlin_message message = {
        .topic = text("c/words/long"), .payload = text(what), .qos = 1, .alias = 1};
    return dunlin_publish(client, &message, NULL);
}

/* Says the next thing when the last one is answered: a message comes back, and
 * is acknowledged. */
static dunlin_code work(dunlin_client *client) {
    static unsigned done;
    if (dunlin_status(client) != DUNLIN_PHASE_UP || done == step)
        return DUNLIN_CODE_OK;
    done = step;
    switch (step) {
    case 1:
        return dunlin_subscribe(client, text("c/words/#"), 1, NULL);
    case 2:
        return say(client, "one");
    case 4:
        return say(client, "three");
    case 6:
    case 7:
        return dunlin_unsubscribe(client, text("c/words/#"), NULL);
    default:
        return DUNLIN_CODE_OK;
    }
}

int device_main(void) {
    dunlin_buffers buffers = {ROOM(hello), ROOM(handshake), ROOM(outgoing), ROOM(incoming),
                              ROOM(datagram)};
    dunlin_room memory = ROOM(state);
    dunlin_client *client = NULL;
    dunlin_message will = {.topic = text("c/gone"), .payload = text("lost"), .qos = 1};
    dunlin_options options = {
        .keys = {key, device_key(key)},
        .name = device_name(),
        .idle_ms = 2000,
        .client_id = text("c-words"),
        .expiry = 60,
        .will = &will,
        .will_delay = 1,
    };
    dunlin_code code = dunlin_new(memory, device_port(), &buffers, &client);
    if (code == DUNLIN_CODE_OK)
        code = dunlin_connect(client, &options);
    while (code == DUNLIN_CODE_OK && step < 8) {
        uint32_t sleep = 0;
        code = work(client);
        if (code == DUNLIN_CODE_OK)
            code = dunlin_run(client, &sleep);
        if (code == DUNLIN_CODE_OK)
            device_wait(sleep);
    }
    device_end(code, dunlin_reason(client));
    return code == DUNLIN_CODE_OK ? 0 : 1;
}
