/*
 * Clients that come one after another, and how long each takes to its first answer.
 */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void on_visited(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    (void)token;
    if (succeeded(pdu) && !client->answered_us)
        client->answered_us = now_us();
}

static void on_made(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    (void)client;
    (void)token;
    expect_success(pdu);
    awaited = 0;
}

/* A client that makes the resource which others observe. */
static void make(const char *path)
{
    struct client *maker = open_clients(1, on_made);
    put(maker, 0, COAP_MESSAGE_CON, path, "-", 1);
    await_least(&awaited, 0);
}

static void print_times(const char *name, const struct client *clients, uint32_t count,
                        uint64_t timeout, bool answers)
{
    const char *comma = "";
    printf("\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = answers ? clients[i].answered_us : clients[i].ready_us;
        if (!at || at - clients[i].begun_us > timeout)
            continue;
        printf("%s%llu", comma, (unsigned long long)(at - clients[i].begun_us));
        comma = ",";
    }
    printf("],");
}

/* Whether a client got to the end in time. */
static bool there(const struct client *client, uint64_t timeout, bool answers)
{
    uint64_t at = answers ? client->answered_us : client->ready_us;
    return at && at - client->begun_us <= timeout;
}

static void print_visits(const struct client *clients, uint32_t count, uint64_t timeout,
                         bool answers, uint64_t late_us)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < count; i++)
        done += there(&clients[i], timeout, answers);
    printf("{\"times\":{\"clients\":%u,\"timeout_us\":%llu,", count, (unsigned long long)timeout);
    print_times("ready_us", clients, count, timeout, false);
    print_times("suback_us", clients, answers ? count : 0, timeout, true);
    printf("\"answered_us\":[],\"connack_us\":[],\"done\":%u,\"early\":0,\"late_us\":%llu,"
           "\"why\":%s}}\n",
           done, (unsigned long long)late_us, done < count ? "\"no answer\"" : "null");
}

/* Waits until all have got to the end, or have been given up. */
static void await_visitors(const struct client *clients, uint32_t count, uint64_t timeout,
                           bool answers)
{
    uint32_t first = 0;
    while (first < count && !ended) {
        const struct client *client = &clients[first];
        uint64_t until = client->begun_us + timeout;
        if (there(client, timeout, answers) || now_us() >= until)
            first++;
        else
            turn(until, false);
    }
}

int visits(void)
{
    const char *path = "visited";
    bool answers = strcmp(value("--until", "handshake"), "suback") == 0;
    uint32_t uncounted = count_of("--uncounted", "0", CLIENTS_MAX);
    uint32_t count = count_of("--handshakes", "1", CLIENTS_MAX);
    uint64_t every = micros_of("--every", "0.01"), timeout = micros_of("--give-up", "5");
    uint32_t all = uncounted + count;
    struct client *clients = zeroed(all, sizeof *clients);
    uint64_t *late = zeroed(all, sizeof *late);
    if (answers)
        make(path);
    uint64_t start = now_us();
    for (uint32_t i = 0; i < all && !ended; i++) {
        uint64_t due = start + i * every;
        turns(due);
        clients[i].answered = on_visited;
        late[i] = now_us() - due;
        open_session(&clients[i]);
        if (answers)
            observe(&clients[i], i, type(), true, path);
    }
    await_visitors(clients, all, timeout, answers);
    print_visits(clients + uncounted, count, timeout, answers, lateness(late, all));
    return 0;
}
