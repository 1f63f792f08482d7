/* What the example needs of a board without a system. That of QEMU's
 * mps2-an386 is in ../src/mps2.rs, over the drivers of the firmware in Rust;
 * on another chip these functions are the port. */
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins; false if there is no network. */
bool board_begin(void);
/* Datagrams to and from the broker. */
void board_send(const uint8_t *data, size_t len);
size_t board_receive(uint8_t *data, size_t room);
/* Milliseconds since the start, and sleep until a datagram may be there. */
uint32_t board_ms(void);
void board_sleep(uint32_t ms);
/* Bytes that cannot be predicted. */
bool board_random(uint8_t *data, size_t len);
/* The public key of the broker and its name; the certificates of the device and their
 * private key of 32 bytes. Null pointers for what there is not. */
struct board_settings {
    const uint8_t *key;
    const uint8_t *name;
    size_t name_len;
    const uint8_t *certificates;
    size_t certificates_len;
    const uint8_t *private_key;
};
struct board_settings board_settings(void);
/* A ticket in memory that outlives sleep. */
void board_store(const uint8_t *ticket, size_t len);
size_t board_load(uint8_t *ticket, size_t room, uint32_t *age_ms);
/* Tells a letter. */
void board_print(uint8_t letter);
/* Sleeps, and begins again as after a reset. */
_Noreturn void board_rest(void);

#endif
