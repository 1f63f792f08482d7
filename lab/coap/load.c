/*
 * Publishers that send at a rate, and observers of what they publish.
 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Messages of one load. */
#define MESSAGES_MAX 10000000u

/* In the token of a request that makes a resource: others are messages. */
#define MAKES 0x80000000u

/* Quiet time before the first message where the link changes meanwhile. */
#define SETTLE_US 200000ull

/* A message that is sent later is one that the generator was late with. */
#define BEHIND_US 10000ull

struct message {
    uint64_t due_us, sent_us, acknowledged_us, arrived_us;
    uint32_t topic;
};

static struct message *messages;
static uint32_t message_count;
static uint32_t acknowledged_count, arrived_count, duplicated_count;

/* How far each topic is prepared. */
enum stage { NEW, MADE, OBSERVED };
static enum stage *topic_stages;
static uint32_t topic_count;

static void topic_path(char path[PATH_LEN_MAX + 1], uint32_t topic)
{
    snprintf(path, PATH_LEN_MAX + 1, "bench/%u", topic);
}

/* An answer may come twice. */
static void on_prepared(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    (void)client;
    enum stage stage = token & MAKES ? MADE : OBSERVED;
    uint32_t topic = token & ~MAKES;
    expect_success(pdu);
    if (topic >= topic_count || topic_stages[topic] >= stage)
        return;
    topic_stages[topic] = stage;
    awaited--;
}

static void on_acknowledged(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    (void)client;
    struct message *message = token < message_count ? &messages[token] : NULL;
    if (!message || message->acknowledged_us || !succeeded(pdu))
        return;
    message->acknowledged_us = now_us();
    acknowledged_count++;
}

/* A message begins with its number. */
static void on_arrived(struct client *client, uint32_t token, const coap_pdu_t *pdu)
{
    (void)client;
    size_t length = 0;
    const uint8_t *data = NULL;
    uint32_t which = 0;
    if (!coap_get_data(pdu, &length, &data))
        return;
    size_t digits = 0;
    for (; digits < length && digits < 9 && data[digits] >= '0' && data[digits] <= '9'; digits++)
        which = which * 10 + (data[digits] - '0');
    if (digits == 0 || which >= message_count || messages[which].topic != token)
        return;
    if (messages[which].arrived_us) {
        duplicated_count++;
        return;
    }
    messages[which].arrived_us = now_us();
    arrived_count++;
}

/* Observers in a namespace of their own, if there is one. */
static struct client *open_observers(uint32_t count)
{
    char path[PATH_LEN_MAX + 1];
    const char *name = value("--sub-namespace", NULL);
    int own = -1, other = -1;
    if (name) {
        snprintf(path, sizeof path, "/run/netns/%s", name);
        own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        other = open(path, O_RDONLY | O_CLOEXEC);
        if (own < 0 || other < 0 || setns(other, CLONE_NEWNET) != 0)
            fail("cannot enter %s: %s", path, strerror(errno));
    }
    struct client *observers = open_clients(count, on_prepared);
    if (name && setns(own, CLONE_NEWNET) != 0)
        fail("cannot come back: %s", strerror(errno));
    if (name) {
        close(own);
        close(other);
    }
    return observers;
}

/* Makes the resources, and has them observed: each by its observer, or all by one. */
static void subscribe(struct client *publishers, uint32_t publisher_count,
                      struct client *observers, uint32_t observer_count, uint32_t topics)
{
    char path[PATH_LEN_MAX + 1];
    topic_count = topics;
    topic_stages = zeroed(topics, sizeof *topic_stages);
    for (uint32_t topic = 0; topic < topics; topic++) {
        topic_path(path, topic);
        struct client *maker = &publishers[topic * (uint64_t)publisher_count / topics];
        put(maker, topic | MAKES, COAP_MESSAGE_CON, path, "-", 1);
    }
    await_least(&awaited, 0);
    for (uint32_t topic = 0; observer_count && topic < topics; topic++) {
        topic_path(path, topic);
        uint32_t who = observer_count == 1 ? 0 : topic;
        observe(&observers[who], topic, COAP_MESSAGE_CON, true, path);
    }
    await_least(&awaited, 0);
}

/* What is confirmable and has no answer yet waits to be sent, first or again. */
static void print_messages(void)
{
    uint64_t now = now_us();
    uint64_t start = message_count ? messages[0].due_us : 0;
    const char *comma = "";
    printf("\"samples\":[");
    for (uint32_t i = 0; i < message_count; i++) {
        struct message *it = &messages[i];
        if (!it->arrived_us || !it->sent_us)
            continue;
        printf("%s[%u,%llu,%llu]", comma, it->topic, (unsigned long long)(it->sent_us - start),
               (unsigned long long)(it->arrived_us - start));
        comma = ",";
    }
    printf("],\"waiting\":[");
    comma = "";
    for (uint32_t i = 0; i < message_count && type() == COAP_MESSAGE_CON; i++) {
        struct message *it = &messages[i];
        if (!it->sent_us || it->arrived_us || it->acknowledged_us)
            continue;
        printf("%s[%llu,%llu]", comma, (unsigned long long)(it->sent_us - start),
               (unsigned long long)(now - it->sent_us));
        comma = ",";
    }
    printf("],\"acknowledged\":[");
    comma = "";
    for (uint32_t i = 0; i < message_count; i++) {
        struct message *it = &messages[i];
        if (!it->acknowledged_us || !it->sent_us)
            continue;
        printf("%s[%llu,%llu]", comma, (unsigned long long)(it->sent_us - start),
               (unsigned long long)(it->acknowledged_us - it->sent_us));
        comma = ",";
    }
    printf("]");
}

static void print_load(uint32_t expected, uint64_t from_epoch_us)
{
    uint64_t *late = zeroed(message_count, sizeof *late);
    uint32_t sent = 0, behind = 0;
    for (uint32_t i = 0; i < message_count; i++) {
        if (!messages[i].sent_us)
            continue;
        late[sent] = messages[i].sent_us - messages[i].due_us;
        behind += late[sent] > BEHIND_US;
        sent++;
    }
    uint64_t to_epoch_us = clock_us(CLOCK_REALTIME);
    printf("{\"published\":%u,\"failed\":%u,\"received\":%u,\"lost\":%u,\"duplicated\":%u,"
           "\"disconnections\":%u,\"causes\":[],\"reconnections\":0,\"moves\":0,\"behind\":%u,"
           "\"late_us\":%llu,\"seconds\":%.6f,\"window_us\":[%llu,%llu],",
           sent, failures, arrived_count, expected - arrived_count, duplicated_count,
           disconnections, behind, (unsigned long long)lateness(late, sent),
           (double)(to_epoch_us - from_epoch_us) / 1e6, (unsigned long long)from_epoch_us,
           (unsigned long long)to_epoch_us);
    print_messages();
    printf("}\n");
    free(late);
}

/* Messages in turn over all publishers, and over the topics of each. */
static void plan(uint32_t publishers, uint32_t topics)
{
    double rate = number("--rate", "1", 1e6);
    double count = rate * number("--duration", "1", 1e6);
    uint32_t each = topics / publishers;
    if (rate <= 0 || count < 1 || count > MESSAGES_MAX)
        fail("--rate and --duration are %.0f messages, not 1 to %u", count, MESSAGES_MAX);
    message_count = (uint32_t)(count + 0.5);
    messages = zeroed(message_count, sizeof *messages);
    for (uint32_t i = 0; i < message_count; i++) {
        messages[i].topic = i % publishers * each + i / publishers % each;
        messages[i].due_us = (uint64_t)((double)i / rate * 1e6);
    }
}

static void send_all(struct client *publishers, uint32_t publisher_count, size_t size)
{
    char path[PATH_LEN_MAX + 1], payload[PAYLOAD_MAX + 16];
    uint64_t start = now_us();
    for (uint32_t i = 0; i < message_count; i++)
        messages[i].due_us += start;
    for (uint32_t i = 0; i < message_count && !ended; i++) {
        struct message *message = &messages[i];
        turns(message->due_us);
        memset(payload, '.', sizeof payload);
        int digits = snprintf(payload, sizeof payload, "%u", i);
        payload[digits] = '.';
        topic_path(path, message->topic);
        message->sent_us = now_us();
        size_t length = size > (size_t)digits + 1 ? size : (size_t)digits + 1;
        struct client *publisher = &publishers[i % publisher_count];
        if (!put(publisher, i, type(), path, payload, length)) {
            message->sent_us = 0;
            failures++;
        }
    }
}

int load(void)
{
    bool pairs = strcmp(value("--pattern", "n-n"), "pair") == 0;
    uint32_t publisher_count = count_of("--pubs", "1", CLIENTS_MAX);
    uint32_t observer_count = pairs ? publisher_count : count_of("--subs", "1", 1);
    uint32_t topics = pairs ? publisher_count : count_of("--topics", "1", CLIENTS_MAX);
    size_t size = count_of("--size", "64", PAYLOAD_MAX);
    uint64_t patience = micros_of("--drain", "5");
    if (publisher_count == 0 || topics < publisher_count)
        fail("%u topics are not enough for %u publishers", topics, publisher_count);
    plan(publisher_count, topics);
    struct client *publishers = open_clients(publisher_count, on_prepared);
    struct client *observers = open_observers(observer_count);
    subscribe(publishers, publisher_count, observers, observer_count, topics);
    for (uint32_t i = 0; i < publisher_count; i++)
        publishers[i].answered = on_acknowledged;
    for (uint32_t i = 0; i < observer_count; i++)
        observers[i].answered = on_arrived;
    if (given("--announce")) {
        puts("connected");
        fflush(stdout);
    }
    /* Where MQTT has a warm-up there is nothing to learn: libcoap's times are fixed. */
    if (given("--exchange"))
        turns(now_us() + SETTLE_US);
    uint64_t from_epoch_us = clock_us(CLOCK_REALTIME);
    send_all(publishers, publisher_count, size);
    uint32_t expected = observer_count ? message_count : 0;
    uint64_t until = now_us() + patience;
    while (!ended && now_us() < until &&
           (arrived_count < expected || acknowledged_count < message_count))
        turn(until, false);
    print_load(expected, from_epoch_us);
    return 0;
}
