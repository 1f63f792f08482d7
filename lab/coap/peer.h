/*
 * What the parts of coap-peer share: options, sessions, the loop.
 */
#ifndef COAP_PEER_H
#define COAP_PEER_H

#define _GNU_SOURCE

#include <coap3/coap.h>

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Clients of one process. */
#define CLIENTS_MAX 10000u

/* Largest message of a load; what one datagram takes. */
#define PAYLOAD_MAX 1024u

/* Longest part of a path of a resource (RFC 7252, 5.10). */
#define PATH_LEN_MAX 255u

/* Longest sleep in the loop. */
#define SLEEP_MAX_US 1000000ull

struct client;

/* What to do with an answer or a notification; `token` is that of the request. */
typedef void answer_handler(struct client *client, uint32_t token, const coap_pdu_t *pdu);

struct client {
    coap_session_t *session;
    answer_handler *answered;
    uint64_t begun_us;
    /* The transport is secure; 0: it is not. */
    uint64_t ready_us;
    uint64_t answered_us;
    bool failed;
};

extern coap_context_t *context;

/* When the process began. */
extern uint64_t started_us, started_epoch_us;

/* Whether the process was asked to end. */
extern volatile sig_atomic_t ended;

/* Requests without an answer, where they are counted. */
extern uint32_t awaited;

/* Messages that were given up, and sessions that ended. */
extern uint32_t failures;
extern uint32_t disconnections;

/* Says why, and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

uint64_t clock_us(clockid_t clock);
uint64_t now_us(void);
void *zeroed(size_t count, size_t size);

/* Options of the command line; those that are not asked for have no effect. */
bool given(const char *name);
const char *value(const char *name, const char *missing);
double number(const char *name, const char *missing, double most);
uint32_t count_of(const char *name, const char *missing, uint32_t most);
uint64_t micros_of(const char *name, const char *missing);

void open_session(struct client *client);
struct client *open_clients(uint32_t count, answer_handler *answered);
coap_pdu_type_t type(void);
bool put(struct client *client, uint32_t token, coap_pdu_type_t how, const char *path,
         const void *payload, size_t length);

/* Begins an observation, or ends it. */
void observe(struct client *client, uint32_t token, coap_pdu_type_t how, bool begin,
             const char *path);
bool succeeded(const coap_pdu_t *pdu);
void expect_success(const coap_pdu_t *pdu);

bool turn(uint64_t until, bool input);
void turns(uint64_t until);
void await_least(const uint32_t *left, uint32_t most);

/* How late it was with all but one in fifty; sorts. */
uint64_t lateness(uint64_t *late, uint32_t count);

int load(void);
int visits(void);
int publish(void);
int watch(void);

#endif
