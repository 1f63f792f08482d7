/* What the example needs of the system below it: one implementation for
 * POSIX, one for a chip without a system. */
#ifndef DEVICE_H
#define DEVICE_H

#include "dunlin_tiny.h"

/* The callbacks, with a socket to the broker behind them. */
const dunlin_port *device_port(void);
/* Sleeps until a datagram is there, at most this long. */
void device_wait(uint32_t ms);
/* Keeps a ticket over sleep, with its age. */
void device_store(const uint8_t *ticket, size_t len);
size_t device_load(uint8_t *ticket, size_t room, uint32_t *age_ms);
/* What the device is given at its making: who the broker is, and a reading. */
size_t device_key(uint8_t key[65]);
dunlin_bytes device_name(void);
/* Its own certificates for a broker that asks for them, and their key; may be empty. */
dunlin_bytes device_certificates(void);
dunlin_bytes device_private_key(void);
const char *device_reading(void);
/* Tells what happened, as far as the device can. */
void device_log(const char *what, unsigned number);
/* Tells how it ended: a device with room for them has texts for the codes. */
void device_end(dunlin_code code, uint8_t reason);
/* What the port calls for each event. */
void device_event(void *context, const dunlin_event *event);

int device_main(void);

#endif
