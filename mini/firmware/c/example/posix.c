/* The example on a host: usage: example HOST PORT KEY READING TICKET-FILE
 * [CERTIFICATES PRIVATE-KEY]. KEY are the 65 bytes of the broker's public key in
 * hexadecimal; the last two are files, of certificates in DER, one behind the other,
 * and of the 32 bytes of their key. */

#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

static int broker = -1;
static char **arguments;
static uint8_t certificates[1024], private_key[32];
static size_t certificates_len, private_key_len;

static void send_datagram(void *context, const uint8_t *data, size_t len) {
    (void)context;
    if (send(broker, data, len, 0) < 0) {
        /* A datagram that cannot be sent is a lost one. */
    }
}

static size_t receive_datagram(void *context, uint8_t *data, size_t room) {
    (void)context;
    ssize_t len = recv(broker, data, room, MSG_DONTWAIT);
    return len > 0 ? (size_t)len : 0;
}

static uint32_t now(void *context) {
    (void)context;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint32_t)((uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000);
}

static bool fill_random(void *context, uint8_t *data, size_t len) {
    (void)context;
    FILE *source = fopen("/dev/urandom", "rb");
    bool good = source && fread(data, 1, len, source) == len;
    if (source)
        fclose(source);
    return good;
}

const dunlin_port *device_port(void) {
    static const dunlin_port port = {.send = send_datagram,
                                     .receive = receive_datagram,
                                     .now = now,
                                     .random = fill_random,
                                     .event = device_event};
    return &port;
}

void device_wait(uint32_t ms) {
    struct pollfd readable = {broker, POLLIN, 0};
    poll(&readable, 1, ms > 10000 ? 10000 : (int)ms);
}

/* For its owner only: the holder of the ticket is believed to be the broker. */
void device_store(const uint8_t *ticket, size_t len) {
    int fd = open(arguments[5], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    time_t at = time(NULL);
    if (!file)
        return;
    fwrite(&at, sizeof at, 1, file);
    fwrite(ticket, 1, len, file);
    fclose(file);
}

size_t device_load(uint8_t *ticket, size_t room, uint32_t *age_ms) {
    FILE *file = fopen(arguments[5], "rb");
    time_t at, now = time(NULL);
    size_t len = 0;
    if (!file)
        return 0;
    /* No ticket is older than a week, or of the future. */
    if (fread(&at, sizeof at, 1, file) == 1 && at <= now && now - at <= 7 * 86400) {
        *age_ms = (uint32_t)(now - at) * 1000;
        len = fread(ticket, 1, room, file);
    }
    fclose(file);
    return len;
}

size_t device_key(uint8_t key[65]) {
    for (size_t i = 0; i < 65; i++) {
        unsigned byte;
        if (sscanf(arguments[3] + 2 * i, "%2x", &byte) != 1)
            return 0;
        key[i] = (uint8_t)byte;
    }
    return 65;
}

dunlin_bytes device_name(void) {
    dunlin_bytes name = {(const uint8_t *)arguments[1], strlen(arguments[1])};
    return name;
}
dunlin_bytes device_certificates(void) {
    dunlin_bytes bytes = {certificates, certificates_len};
    return bytes;
}
dunlin_bytes device_private_key(void) {
    dunlin_bytes bytes = {private_key, private_key_len};
    return bytes;
}
const char *device_reading(void) { return arguments[4]; }

void device_log(const char *what, unsigned number) {
    printf("%s: %u\n", what, number);
    fflush(stdout);
}

void device_end(dunlin_code code, uint8_t reason) {
    device_log("code", code);
    if (code != DUNLIN_CODE_OK)
        fprintf(stderr, "error %u: %s\n", code, dunlin_error_text(code));
    if (reason >= 128)
        fprintf(stderr, "reason %u: %s\n", reason, dunlin_reason_text(reason));
}

/* The bytes of a file. */
static size_t load(const char *path, uint8_t *room, size_t len) {
    FILE *file = fopen(path, "rb");
    size_t got = file ? fread(room, 1, len, file) : 0;
    if (file)
        fclose(file);
    return got;
}

int main(int count, char **words) {
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if ((count != 6 && count != 8) || strlen(words[3]) != 130) {
        fprintf(stderr,
                "usage: %s HOST PORT KEY READING TICKET-FILE [CERTIFICATES PRIVATE-KEY]\n",
                words[0]);
        return 2;
    }
    arguments = words;
    if (count == 8) {
        certificates_len = load(words[6], certificates, sizeof certificates);
        private_key_len = load(words[7], private_key, sizeof private_key);
    }
    if (getaddrinfo(words[1], words[2], &hints, &found) != 0 || !found)
        return 1;
    broker = socket(found->ai_family, SOCK_DGRAM, 0);
    if (broker < 0 || connect(broker, found->ai_addr, found->ai_addrlen) != 0)
        return 1;
    freeaddrinfo(found);
    return device_main();
}
