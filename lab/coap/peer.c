/*
 * coap-peer: clients of CoAP by libcoap for the experiments of dunlin-lab.
 *
 *   coap-peer load     publishers and observers, as `dunlin bench --library`
 *   coap-peer visits   clients one after another, as `dunlin bench --handshakes`
 *   coap-peer pub      one publisher, as `dunlin pub`
 *   coap-peer sub      one observer, as `dunlin sub`
 *
 * It takes the options of those programs that the lab uses and prints what they print.
 * Options of what CoAP does not have (keep alive, sessions, streams, QoS) have no effect.
 *
 * A publish is a PUT, a subscription a GET with Observe (RFC 7641). All parameters of
 * transmission are libcoap's, which are those of RFC 7252, 4.8: one confirmable message
 * in flight (NSTART), sent again after 2 to 3 s.
 *
 * What it must not know: anything about links and namespaces but the name of one.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Handshakes of DTLS at a time while a load is prepared: a server of libcoap takes 100. */
#define HANDSHAKES_MAX 32u

/* Longest wait until a load is prepared. */
#define PREPARE_MAX_US (60 * 1000000ull)

static int argument_count;
static char **arguments;

coap_context_t *context;
uint64_t started_us, started_epoch_us;
volatile sig_atomic_t ended;
uint32_t awaited;
uint32_t failures;
uint32_t disconnections;

/* Sessions of DTLS that are not secure yet. */
static uint32_t handshakes;

void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("coap-peer: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    exit(1);
}

uint64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t now_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (!memory)
        fail("no memory");
    return memory;
}

/* Options. */

bool given(const char *name)
{
    for (int i = 2; i < argument_count; i++)
        if (strcmp(arguments[i], name) == 0)
            return true;
    return false;
}

const char *value(const char *name, const char *missing)
{
    for (int i = 2; i + 1 < argument_count; i++)
        if (strcmp(arguments[i], name) == 0)
            return arguments[i + 1];
    return missing;
}

double number(const char *name, const char *missing, double most)
{
    const char *text = value(name, missing);
    char *end = NULL;
    double found = strtod(text, &end);
    if (end == text || *end || !(found >= 0) || found > most)
        fail("%s: `%s` is no number from 0 to %.0f", name, text, most);
    return found;
}

uint32_t count_of(const char *name, const char *missing, uint32_t most)
{
    return (uint32_t)number(name, missing, most);
}

uint64_t micros_of(const char *name, const char *missing)
{
    return (uint64_t)(number(name, missing, 1e6) * 1e6);
}

/* The server: `coap://10.203.0.2:5683`. */
static bool server(coap_address_t *address)
{
    const char *url = value("--url", NULL);
    if (!url)
        fail("say --url");
    bool secure = strncmp(url, "coaps://", 8) == 0;
    char host[INET_ADDRSTRLEN];
    unsigned port = 0;
    int end = 0;
    if (!secure && strncmp(url, "coap://", 7) != 0)
        fail("--url: `%s` is no address of CoAP", url);
    const char *rest = url + (secure ? 8 : 7);
    if (sscanf(rest, "%15[0-9.]:%5u%n", host, &port, &end) != 2 || rest[end] || port > 65535)
        fail("--url: `%s` has no IPv4 address and port", url);
    coap_address_init(address);
    address->size = sizeof address->addr.sin;
    address->addr.sin.sin_family = AF_INET;
    address->addr.sin.sin_port = htons((uint16_t)port);
    if (inet_pton(AF_INET, host, &address->addr.sin.sin_addr) != 1)
        fail("--url: `%s` is no IPv4 address", host);
    return secure;
}

/* Sessions. */

static coap_session_t *certified(const coap_address_t *to)
{
    static char no_name[] = "dunlin";
    coap_dtls_pki_t pki;
    memset(&pki, 0, sizeof pki);
    pki.version = COAP_DTLS_PKI_SETUP_VERSION;
    pki.verify_peer_cert = 1;
    pki.allow_self_signed = 1;
    pki.cert_chain_validation = 1;
    pki.cert_chain_verify_depth = 2;
    pki.check_cert_revocation = 1;
    pki.allow_no_crl = 1;
    pki.client_sni = no_name;
    pki.pki_key.key_type = COAP_PKI_KEY_PEM;
    return coap_new_client_session_pki(context, NULL, to, COAP_PROTO_DTLS, &pki);
}

void open_session(struct client *client)
{
    coap_address_t to;
    bool secure = server(&to);
    const char *key = value("--key", NULL);
    client->begun_us = now_us();
    if (!secure)
        client->session = coap_new_client_session(context, NULL, &to, COAP_PROTO_UDP);
    else if (key)
        client->session = coap_new_client_session_psk(
            context, NULL, &to, COAP_PROTO_DTLS, "device", (const uint8_t *)key,
            (unsigned)strlen(key));
    else
        client->session = certified(&to);
    if (!client->session)
        fail("cannot open a session");
    coap_session_set_app_data(client->session, client);
    handshakes += secure;
}

/* Whether messages are confirmable. */
coap_pdu_type_t type(void)
{
    return given("-N") ? COAP_MESSAGE_NON : COAP_MESSAGE_CON;
}

static coap_pdu_t *request(struct client *client, uint32_t token, coap_pdu_type_t how,
                           coap_pdu_code_t code)
{
    coap_pdu_t *pdu = coap_new_pdu(how, code, client->session);
    if (!pdu || !coap_add_token(pdu, sizeof token, (const uint8_t *)&token))
        fail("cannot make a request");
    return pdu;
}

static void add_path(coap_pdu_t *pdu, const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length > PATH_LEN_MAX ||
            !coap_add_option(pdu, COAP_OPTION_URI_PATH, length, (const uint8_t *)path))
            fail("the path does not fit");
        path += length + (path[length] == '/');
    }
}

/* Whether it was sent, or waits to be. */
bool put(struct client *client, uint32_t token, coap_pdu_type_t how, const char *path,
         const void *payload, size_t length)
{
    coap_pdu_t *pdu = request(client, token, how, COAP_REQUEST_CODE_PUT);
    add_path(pdu, path);
    int added = length > PAYLOAD_MAX
                    ? coap_add_data_large_request(client->session, pdu, length, payload, NULL, NULL)
                    : coap_add_data(pdu, length, payload);
    if (!added)
        fail("the payload does not fit");
    bool sent = coap_send(client->session, pdu) != COAP_INVALID_MID;
    awaited += sent;
    return sent;
}

void observe(struct client *client, uint32_t token, coap_pdu_type_t how, bool begin,
             const char *path)
{
    const uint8_t deregister = 1;
    coap_pdu_t *pdu = request(client, token, how, COAP_REQUEST_CODE_GET);
    /* Zero has no bytes. */
    if (!coap_add_option(pdu, COAP_OPTION_OBSERVE, begin ? 0 : 1, &deregister))
        fail("an option does not fit");
    add_path(pdu, path);
    if (coap_send(client->session, pdu) == COAP_INVALID_MID)
        fail("cannot observe");
    awaited++;
}

static coap_response_t on_response(coap_session_t *session, const coap_pdu_t *sent,
                                   const coap_pdu_t *received, const coap_mid_t id)
{
    struct client *client = coap_session_get_app_data(session);
    coap_bin_const_t token = coap_pdu_get_token(received);
    uint32_t which;
    (void)sent;
    (void)id;
    if (client && token.length == sizeof which) {
        memcpy(&which, token.s, sizeof which);
        client->answered(client, which, received);
    }
    return COAP_RESPONSE_OK;
}

static void on_nack(coap_session_t *session, const coap_pdu_t *sent,
                    const coap_nack_reason_t reason, const coap_mid_t id)
{
    struct client *client = coap_session_get_app_data(session);
    (void)sent;
    (void)id;
    if (reason == COAP_NACK_ICMP_ISSUE)
        return;
    failures++;
    if (client)
        client->failed = true;
}

static int on_event(coap_session_t *session, coap_event_t event)
{
    struct client *client = coap_session_get_app_data(session);
    if (event == COAP_EVENT_DTLS_CONNECTED) {
        handshakes -= handshakes > 0;
        if (client && !client->ready_us)
            client->ready_us = now_us();
    }
    if (event == COAP_EVENT_DTLS_CLOSED || event == COAP_EVENT_DTLS_ERROR) {
        disconnections++;
        if (client)
            client->failed = true;
    }
    return 0;
}

/* Handles what comes until a time, or until there is input where that is asked for. */
bool turn(uint64_t until, bool input)
{
    struct pollfd fds[2] = {{coap_context_get_coap_fd(context), POLLIN, 0}, {0, POLLIN, 0}};
    uint64_t now = now_us();
    uint64_t left = until > now ? until - now : 0;
    if (left > SLEEP_MAX_US)
        left = SLEEP_MAX_US;
    struct timespec wait = {(time_t)(left / 1000000), (long)(left % 1000000) * 1000};
    ppoll(fds, input ? 2 : 1, &wait, NULL);
    coap_io_process(context, COAP_IO_NO_WAIT);
    return input && fds[1].revents;
}

void turns(uint64_t until)
{
    do
        turn(until, false);
    while (now_us() < until && !ended);
}

bool succeeded(const coap_pdu_t *pdu)
{
    return COAP_RESPONSE_CLASS(coap_pdu_get_code(pdu)) == 2;
}

void expect_success(const coap_pdu_t *pdu)
{
    coap_pdu_code_t code = coap_pdu_get_code(pdu);
    if (!succeeded(pdu))
        fail("a request was refused: %u.%02u", COAP_RESPONSE_CLASS(code), code & 31u);
}

/* Until no more than so many of something are left. */
void await_least(const uint32_t *left, uint32_t most)
{
    uint64_t until = now_us() + PREPARE_MAX_US;
    while (*left > most) {
        turn(until, false);
        if (failures || disconnections || now_us() > until || ended)
            fail("not connected: %u requests failed, %u sessions ended", failures,
                 disconnections);
    }
}

struct client *open_clients(uint32_t count, answer_handler *answered)
{
    struct client *clients = zeroed(count, sizeof *clients);
    for (uint32_t i = 0; i < count; i++) {
        clients[i].answered = answered;
        open_session(&clients[i]);
        await_least(&handshakes, HANDSHAKES_MAX);
    }
    return clients;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* How late it was with all but one in fifty. */
uint64_t lateness(uint64_t *late, uint32_t count)
{
    if (count == 0)
        return 0;
    qsort(late, count, sizeof *late, by_size);
    return late[(uint64_t)(count - 1) * 98 / 100];
}

static void on_signal(int signal)
{
    (void)signal;
    ended = 1;
}

static void start(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    started_us = now_us();
    started_epoch_us = clock_us(CLOCK_REALTIME);
    coap_startup();
    coap_set_log_level(LOG_CRIT);
    coap_dtls_set_log_level(LOG_CRIT);
    context = coap_new_context(NULL);
    if (!context)
        fail("libcoap does not start");
    if (coap_context_get_coap_fd(context) < 0)
        fail("libcoap was built without epoll");
    const char *ca = value("--ca", value("--cafile", NULL));
    if (ca && !coap_context_set_pki_root_cas(context, ca, NULL))
        fail("cannot read %s", ca);
    coap_register_response_handler(context, on_response);
    coap_register_nack_handler(context, on_nack);
    coap_register_event_handler(context, on_event);
}

int main(int count, char **values)
{
    argument_count = count;
    arguments = values;
    const char *what = count > 1 ? values[1] : "";
    int (*job)(void) = strcmp(what, "load") == 0     ? load
                       : strcmp(what, "visits") == 0 ? visits
                       : strcmp(what, "pub") == 0    ? publish
                       : strcmp(what, "sub") == 0    ? watch
                                                     : NULL;
    if (!job)
        fail("say load, visits, pub or sub, and --url");
    start();
    int code = job();
    /* Releases sessions, which closes those of DTLS. */
    coap_free_context(context);
    coap_cleanup();
    return code;
}
