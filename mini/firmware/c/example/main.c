/* A device that wakes, reports a reading with QoS 1, takes one command, keeps
 * its ticket, and sleeps. The same file runs on a host and on a chip; what
 * differs is behind device.h. */

#include <string.h>

#include "device.h"

/* The hello of the device and its ticket; its certificates need their length and 180
 * bytes more. */
#ifndef HELLO
#define HELLO 768
#endif

/* All memory of the client. */
static uint64_t state[DUNLIN_STATE_SIZE / 8];
static uint8_t hello[HELLO], handshake[2048], outgoing[512], incoming[512];
static uint8_t datagram[1472];
static uint8_t key[65], ticket[320];

static uint16_t reading_id;
static bool reported, subscribed, commanded;

static dunlin_bytes text(const char *s) {
    dunlin_bytes bytes = {(const uint8_t *)s, strlen(s)};
    return bytes;
}

#define ROOM(array) {(uint8_t *)(array), sizeof(array)}

/* Called by the library inside of dunlin_run. */
void device_event(void *context, const dunlin_event *event) {
    (void)context;
    switch (event->kind) {
    case DUNLIN_KIND_CONNECTED:
        device_log("connected, session kept", event->session);
        subscribed = event->session;
        break;
    case DUNLIN_KIND_MESSAGE:
        device_log("command of bytes", (unsigned)event->payload.len);
        commanded = true;
        break;
    case DUNLIN_KIND_PUBLISHED:
        device_log("reading acknowledged, reason", event->reason);
        reported = event->id == reading_id;
        break;
    case DUNLIN_KIND_REJECTED:
        device_log("reading refused, reason", event->reason);
        break;
    case DUNLIN_KIND_SUBSCRIBED:
        device_log("subscribed, reason", event->reason);
        break;
    }
}

/* Says what the device has to say. */
static dunlin_code work(dunlin_client *client) {
    static bool said;
    dunlin_phase phase = dunlin_status(client);
    dunlin_code code = DUNLIN_CODE_OK;
    if (phase != DUNLIN_PHASE_READY && phase != DUNLIN_PHASE_UP)
        return code;
    if (!said) {
        dunlin_message message = {
            .topic = text("c/up"), .payload = text(device_reading()), .qos = 1};
        code = dunlin_publish(client, &message, &reading_id);
        said = code == DUNLIN_CODE_OK;
    }
    if (phase == DUNLIN_PHASE_UP && !subscribed && code == DUNLIN_CODE_OK) {
        code = dunlin_subscribe(client, text("c/down"), 1, NULL);
        subscribed = code == DUNLIN_CODE_OK;
    }
    /* No room now: the next turn tries again. */
    return code == DUNLIN_CODE_FULL ? DUNLIN_CODE_OK : code;
}

/* Takes the ticket as long as there is a connection to take it from. */
static void keep_ticket(dunlin_client *client) {
    dunlin_room room = ROOM(ticket);
    size_t len = 0;
    if (dunlin_ticket(client, room, &len) == DUNLIN_CODE_OK && len > 0)
        device_store(ticket, len);
}

int device_main(void) {
    dunlin_buffers buffers = {ROOM(hello), ROOM(handshake), ROOM(outgoing), ROOM(incoming),
                              ROOM(datagram)};
    dunlin_room memory = ROOM(state);
    dunlin_client *client = NULL;
    dunlin_code code = dunlin_new(memory, device_port(), &buffers, &client);
    if (code == DUNLIN_CODE_OK) {
        uint32_t age = 0;
        size_t len = device_load(ticket, sizeof ticket, &age);
        dunlin_options options = {
            .keys = {key, device_key(key)},
            .name = device_name(),
            .idle_ms = 10000,
            .ticket = {ticket, len},
            .ticket_age_ms = age,
            .early = true,
            .certificates = device_certificates(),
            .private_key = device_private_key(),
            .client_id = text("c-device"),
            .keep_alive = 60,
            .expiry = 3600,
        };
        code = dunlin_connect(client, &options);
    }
    bool leaving = false;
    while (code == DUNLIN_CODE_OK && dunlin_status(client) != DUNLIN_PHASE_CLOSED) {
        uint32_t sleep = 0;
        code = leaving ? DUNLIN_CODE_OK : work(client);
        if (code == DUNLIN_CODE_OK)
            code = dunlin_run(client, &sleep);
        if (code == DUNLIN_CODE_OK && reported && commanded && !leaving) {
            keep_ticket(client);
            device_log("resumed", dunlin_is_resumed(client));
            device_log("early data taken", dunlin_took_early_data(client));
            code = dunlin_disconnect(client);
            leaving = true;
        } else if (code == DUNLIN_CODE_OK) {
            device_wait(sleep);
        }
    }
    device_end(code, dunlin_reason(client));
    return code == DUNLIN_CODE_OK && reported && commanded ? 0 : 1;
}
