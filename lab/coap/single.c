/*
 * One publisher, of lines or of a file so many times, and one observer.
 */
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Largest file that is published; more than one datagram goes block by block. */
#define FILE_MAX (1u << 20)

/* Longest line of standard input. */
#define LINE_LEN_MAX 1024u

/* Longest wait for the answer to the end of an observation. */
#define LEAVE_MAX_US 500000ull

/* Most times that a file is published. */
#define REPEAT_MAX 1000000u

static uint64_t first_us, last_us, subscribed_us;

static void print_timing(const struct client *client)
{
    if (!given("--timing"))
        return;
    uint64_t ready = client->ready_us ? client->ready_us - started_us : 0;
    printf("{\"start_unix_us\":%llu,\"connected_us\":%llu", (unsigned long long)started_epoch_us,
           (unsigned long long)ready);
    if (subscribed_us)
        printf(",\"subscribed_us\":%llu", (unsigned long long)(subscribed_us - started_us));
    if (first_us)
        printf(",\"acknowledged_us\":%llu,\"all_acknowledged_us\":%llu",
               (unsigned long long)(first_us - started_us),
               (unsigned long long)(last_us - started_us));
    printf("}\n");
    fflush(stdout);
}

static void on_put(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    (void)client;
    expect_success(pdu);
    awaited -= awaited > 0;
    last_us = now_us();
    first_us = first_us ? first_us : last_us;
    if (given("-d")) {
        printf("Answered %u\n", token);
        fflush(stdout);
    }
}

/* The same payload so many times, each when the one before has its answer. */
static void repeat(struct client *client, const char *path, uint32_t count)
{
    static uint8_t payload[FILE_MAX];
    const char *file = value("-f", "");
    FILE *from = fopen(file, "rb");
    if (!from)
        fail("cannot read %s: %s", file, strerror(errno));
    size_t length = fread(payload, 1, sizeof payload, from);
    if (!feof(from) && length == sizeof payload)
        fail("%s has more than %u bytes", file, FILE_MAX);
    fclose(from);
    for (uint32_t i = 0; i < count && !ended; i++) {
        if (!put(client, i, type(), path, payload, length))
            fail("cannot send");
        while (awaited && !ended && !client->failed)
            turn(now_us() + SLEEP_MAX_US, false);
        if (client->failed)
            fail("message %u got no answer", i);
    }
}

/* Each line as it comes. */
static void publish_lines(struct client *client, const char *path)
{
    static char buffer[LINE_LEN_MAX];
    size_t held = 0;
    uint32_t token = 0;
    while (!ended && !client->failed) {
        if (!turn(now_us() + SLEEP_MAX_US, true))
            continue;
        ssize_t more = read(0, buffer + held, sizeof buffer - held);
        if (more <= 0)
            break;
        held += (size_t)more;
        char *end;
        while ((end = memchr(buffer, '\n', held))) {
            size_t length = (size_t)(end - buffer);
            /* The first shows that the server is there. */
            put(client, token, token ? type() : COAP_MESSAGE_CON, path, buffer, length);
            token++;
            held -= length + 1;
            memmove(buffer, end + 1, held);
        }
        if (held == sizeof buffer)
            fail("a line has more than %u bytes", LINE_LEN_MAX);
    }
}

int publish(void)
{
    const char *path = value("-t", "probe");
    uint64_t patience = micros_of("--drain", "5");
    if (!given("-l"))
        coap_context_set_block_mode(context, COAP_BLOCK_USE_LIBCOAP);
    struct client *client = open_clients(1, on_put);
    if (given("-l")) {
        publish_lines(client, path);
        uint64_t until = now_us() + patience;
        while (awaited && now_us() < until && !ended && !client->failed)
            turn(until, false);
    } else {
        repeat(client, path, count_of("--repeat", "1", REPEAT_MAX));
    }
    if (client->failed)
        fail("a message got no answer");
    print_timing(client);
    return 0;
}

/* Tokens of an observer; an observation ends with that of its beginning (RFC 7641, 3.6). */
enum { OBSERVE, MAKE };

/* The observation has ended. */
static bool left;

static void on_notified(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    const char *path = value("-t", "probe");
    coap_pdu_code_t code = coap_pdu_get_code(pdu);
    size_t length = 0;
    const uint8_t *data = NULL;
    if (ended) {
        left = true;
    } else if (token == OBSERVE && code == COAP_RESPONSE_CODE_NOT_FOUND) {
        put(client, MAKE, COAP_MESSAGE_CON, path, "-", 1);
    } else if (token == MAKE) {
        observe(client, OBSERVE, COAP_MESSAGE_CON, true, path);
    } else if (!subscribed_us) {
        expect_success(pdu);
        subscribed_us = now_us();
        printf("Subscribed '%s'\n", path);
    } else if (coap_get_data(pdu, &length, &data)) {
        uint64_t at = clock_us(CLOCK_REALTIME);
        printf("%llu.%09llu %.*s\n", (unsigned long long)(at / 1000000),
               (unsigned long long)(at % 1000000 * 1000), (int)length, (const char *)data);
    }
    fflush(stdout);
}

int watch(void)
{
    struct client *client = open_clients(1, on_notified);
    const char *path = value("-t", "probe");
    observe(client, OBSERVE, COAP_MESSAGE_CON, true, path);
    while (!ended && !client->failed)
        turn(now_us() + SLEEP_MAX_US, false);
    if (client->failed)
        fail("the observation ended");
    /* Else the server would go on to notify it. */
    observe(client, OBSERVE, COAP_MESSAGE_CON, false, path);
    uint64_t until = now_us() + LEAVE_MAX_US;
    while (!left && now_us() < until)
        turn(until, false);
    print_timing(client);
    return 0;
}
