/* dunlin_tiny.h: MQTT 5 over QUIC for devices.
 *
 * Made from mini/dunlin-tiny-c by cbindgen; not to be edited. For C99, C++11
 * and later.
 *
 * Memory comes from the caller, and there is no allocator:
 *
 *     static uint64_t state[DUNLIN_STATE_SIZE / 8];
 *     dunlin_room memory = {(uint8_t *)state, sizeof state};
 *
 *     dunlin_new(memory, &port, &buffers, &client);
 *     dunlin_connect(client, &options);
 *     while (dunlin_status(client) != DUNLIN_PHASE_CLOSED) {
 *         dunlin_publish(client, &message, &id);  once it is ready
 *         if (dunlin_run(client, &sleep) != DUNLIN_CODE_OK)
 *             break;
 *         wait for a datagram, `sleep` milliseconds at most
 *     }
 *
 * All calls for one client come from one thread at a time, and from no interrupt
 * that could break into another one. */

#ifndef DUNLIN_TINY_H
#define DUNLIN_TINY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of memory that are enough for a client on every machine, aligned to
// 8. dunlin_size tells what this machine needs.
#define DUNLIN_STATE_SIZE 4096

// Why a call was refused or a connection ended: dunlin_error_text has it in
// words. From dunlin_run, all but those from `DUNLIN_CODE_BUSY` on say that the
// connection is over. From other functions, they say that nothing was done and
// all else goes on.
enum dunlin_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done.
  DUNLIN_CODE_OK = 0,
  // Nothing was heard for the idle timeout.
  DUNLIN_CODE_IDLE_TIMEOUT = 1,
  // The server closed the connection, with a transport error or none.
  DUNLIN_CODE_CLOSED_BY_PEER = 2,
  // The server's application closed the connection.
  DUNLIN_CODE_CLOSED_BY_APPLICATION = 3,
  // The application closed the connection.
  DUNLIN_CODE_CLOSED_LOCALLY = 4,
  // The server has forgotten the connection (stateless reset).
  DUNLIN_CODE_STATELESS_RESET = 5,
  // The server does not speak QUIC version 1.
  DUNLIN_CODE_VERSION_NEGOTIATION = 6,
  // The entropy source failed.
  DUNLIN_CODE_ENTROPY = 7,
  // All packet numbers of a 32-bit counter are used up.
  DUNLIN_CODE_PACKET_NUMBERS = 8,
  // All bytes of a 32-bit counter are used up, in one of the directions: a
  // connection carries 4 GB less 16 MB. Connect again.
  DUNLIN_CODE_BYTE_NUMBERS = 9,
  // A frame is cut off or has an impossible value.
  DUNLIN_CODE_FRAME_ENCODING = 16,
  // A frame of a type that QUIC version 1 does not have.
  DUNLIN_CODE_UNKNOWN_FRAME = 17,
  // A frame in a packet where it may not be.
  DUNLIN_CODE_FRAME_FORBIDDEN = 18,
  // A packet without a frame.
  DUNLIN_CODE_EMPTY_PACKET = 19,
  // Reserved bits of the header are set.
  DUNLIN_CODE_RESERVED_BITS = 20,
  // An acknowledgement of a packet that was never sent.
  DUNLIN_CODE_ACK_UNSENT = 21,
  // An acknowledgement with a range below zero.
  DUNLIN_CODE_ACK_RANGE = 22,
  // More stream data than the window of the stream.
  DUNLIN_CODE_STREAM_FLOW_CONTROL = 23,
  // More stream data than the window of the connection.
  DUNLIN_CODE_CONNECTION_FLOW_CONTROL = 24,
  // Data beyond the end of a stream, or a second, different end.
  DUNLIN_CODE_FINAL_SIZE = 25,
  // A frame for a stream that does not exist or has no such side.
  DUNLIN_CODE_STREAM_STATE = 26,
  // The server opened a stream, which it may not.
  DUNLIN_CODE_STREAM_LIMIT = 27,
  // Handshake data beyond the buffer for it.
  DUNLIN_CODE_CRYPTO_BUFFER = 28,
  // More connection ids than allowed.
  DUNLIN_CODE_CONNECTION_ID_LIMIT = 29,
  // A connection id of a wrong length, or one number with two ids.
  DUNLIN_CODE_CONNECTION_ID = 30,
  // A transport parameter is malformed or out of its range.
  DUNLIN_CODE_TRANSPORT_PARAMETER = 31,
  // The ids in the transport parameters are not those of the packets.
  DUNLIN_CODE_PARAMETER_IDS = 32,
  // The server sent a limit below the one that early data relied on.
  DUNLIN_CODE_PARAMETER_SHRUNK = 33,
  // A NEW_TOKEN frame with an empty token.
  DUNLIN_CODE_EMPTY_TOKEN = 36,
  // The token of a Retry does not fit.
  DUNLIN_CODE_RETRY_TOKEN = 37,
  // Too many gaps in what arrived; never ends a connection, the packet is
  // left unacknowledged and comes again.
  DUNLIN_CODE_AGAIN = 38,
  // A handshake message is malformed.
  DUNLIN_CODE_DECODE = 64,
  // A handshake message at the wrong time.
  DUNLIN_CODE_UNEXPECTED_MESSAGE = 65,
  // The server asks for another hello (HelloRetryRequest) that would be the
  // same, or this build has no other.
  DUNLIN_CODE_HELLO_RETRY = 66,
  // The server did not choose TLS 1.3.
  DUNLIN_CODE_DOWNGRADE = 67,
  // The server chose a cipher suite that was not offered.
  DUNLIN_CODE_CIPHER_SUITE = 68,
  // The server sent no key share, or one of another group.
  DUNLIN_CODE_KEY_SHARE = 69,
  // The server's key share is no point of the curve.
  DUNLIN_CODE_BAD_POINT = 70,
  // The server chose a ticket that was not offered.
  DUNLIN_CODE_PSK_IDENTITY = 71,
  // An extension that was not offered.
  DUNLIN_CODE_UNSUPPORTED_EXTENSION = 72,
  // The server chose no or another application protocol.
  DUNLIN_CODE_ALPN = 73,
  // The server sent no transport parameters.
  DUNLIN_CODE_MISSING_PARAMETERS = 74,
  // The handshake is signed with another algorithm than offered.
  DUNLIN_CODE_SIGNATURE_SCHEME = 75,
  // The signature of the handshake is wrong.
  DUNLIN_CODE_CERTIFICATE_VERIFY = 76,
  // The server's Finished is wrong.
  DUNLIN_CODE_FINISHED = 77,
  // Handshake bytes that straddle a change of keys.
  DUNLIN_CODE_STRADDLE = 78,
  // The server accepted early data that was not offered.
  DUNLIN_CODE_EARLY_DATA = 79,
  // The server echoed a session id that was not sent.
  DUNLIN_CODE_SESSION_ID = 80,
  // A ticket allows an amount of early data that QUIC does not know.
  DUNLIN_CODE_TICKET_EARLY_DATA = 81,
  // The cookie of a HelloRetryRequest does not fit.
  DUNLIN_CODE_COOKIE = 82,
  // An extension that comes twice, or in a message that may not have it.
  DUNLIN_CODE_ILLEGAL_EXTENSION = 83,
  // The own certificates are not in DER, one behind the other, or the key of the
  // first is none of P-256.
  DUNLIN_CODE_CLIENT_KEY = 84,
  // The server sent no certificate.
  DUNLIN_CODE_NO_CERTIFICATE = 96,
  // The certificate is not X.509.
  DUNLIN_CODE_CERTIFICATE_ENCODING = 97,
  // The certificate's key is not of P-256.
  DUNLIN_CODE_CERTIFICATE_KEY = 98,
  // The server's key is not among the pinned ones.
  DUNLIN_CODE_WRONG_KEY = 99,
  // The certificate is not signed with ECDSA P-256 and SHA-256.
  DUNLIN_CODE_CERTIFICATE_ALGORITHM = 100,
  // The certificate was not signed by the authority.
  DUNLIN_CODE_UNKNOWN_AUTHORITY = 101,
  // The certificate names another server.
  DUNLIN_CODE_WRONG_NAME = 102,
  // The certificate is not valid yet.
  DUNLIN_CODE_NOT_YET_VALID = 103,
  // The certificate has expired.
  DUNLIN_CODE_EXPIRED = 104,
  // The certificate may not be used for servers.
  DUNLIN_CODE_WRONG_USAGE = 105,
  // The certificate has a critical extension that is not understood.
  DUNLIN_CODE_CRITICAL_EXTENSION = 106,
  // The memory or buffers are too small for what the call needs, or the memory
  // is not aligned.
  DUNLIN_CODE_MEMORY = 128,
  // The call makes no sense in this state.
  DUNLIN_CODE_STATE = 129,
  // There is no such stream.
  DUNLIN_CODE_NO_STREAM = 130,
  // No stream can be opened now.
  DUNLIN_CODE_NO_STREAM_LEFT = 131,
  // The stored ticket is not one of this client.
  DUNLIN_CODE_TICKET = 132,
  // The server forbids migration, or no connection id is left for it.
  DUNLIN_CODE_MIGRATION = 133,
  // The stream was ended by the other side.
  DUNLIN_CODE_STREAM_RESET = 134,
  // A packet of the broker is malformed, or of a kind that a client does not
  // get.
  DUNLIN_CODE_MALFORMED = 160,
  // A packet of the broker is longer than the receive buffer.
  DUNLIN_CODE_TOO_LONG = 161,
  // The broker refused the connection; dunlin_reason says why.
  DUNLIN_CODE_REFUSED = 162,
  // The broker ended the connection; dunlin_reason says why.
  DUNLIN_CODE_DISCONNECTED = 163,
  // The broker ended the stream without a word.
  DUNLIN_CODE_ENDED = 164,
  // The send buffer has no room now: call again after the next dunlin_run.
  DUNLIN_CODE_FULL = 165,
  // The packet is longer than the send buffer, or than the broker takes.
  DUNLIN_CODE_TOO_LARGE = 166,
  // The call makes no sense now: not connected, or over.
  DUNLIN_CODE_SESSION_STATE = 167,
  // More messages under way than the broker allows, or than fit.
  DUNLIN_CODE_QUOTA = 168,
  // The broker or this build does not have this quality of service.
  DUNLIN_CODE_QOS = 169,
  // A call from inside of a callback.
  DUNLIN_CODE_BUSY = 192,
  // A pointer or callback is null that must not be, or bytes that have a
  // length are.
  DUNLIN_CODE_NULL_POINTER = 193,
  // A key does not have 65 bytes, or the private one not 32.
  DUNLIN_CODE_KEY_LENGTH = 194,
  // Neither keys nor an authority were given, or this build knows none.
  DUNLIN_CODE_NO_KEY = 195,
  // An authority was given, but neither the name nor the address of the
  // broker, or one that has neither 4 nor 16 bytes.
  DUNLIN_CODE_NO_NAME = 196,
  // A topic or a topic filter is empty.
  DUNLIN_CODE_NO_TOPIC = 197,
  // Certificates of the device were given, and this build shows none.
  DUNLIN_CODE_NO_IDENTITY = 198,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dunlin_code dunlin_code;
#else
typedef uint8_t dunlin_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an event is about.
enum dunlin_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The broker has accepted; `session` tells whether it knows the session,
  // so that subscriptions need not be made again.
  DUNLIN_KIND_CONNECTED = 1,
  // A message: `topic`, `payload`, `qos`, `retain`.
  DUNLIN_KIND_MESSAGE = 2,
  // The message `id` is with the broker; `reason` 16 says that there is no
  // subscriber.
  DUNLIN_KIND_PUBLISHED = 3,
  // The subscription `id` is made with the quality `reason`, or refused
  // with a `reason` from 128 on.
  DUNLIN_KIND_SUBSCRIBED = 4,
  // The subscription that `id` asked to end is gone; `reason` 17 says that
  // there was none, one from 128 on that it is still there.
  DUNLIN_KIND_UNSUBSCRIBED = 5,
  // The broker did not take the message `id`, with a `reason` from 128 on. The
  // number is free: publish it as a new message, or never.
  DUNLIN_KIND_REJECTED = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dunlin_kind dunlin_kind;
#else
typedef uint8_t dunlin_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where a client is.
enum dunlin_phase
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Never connected.
  DUNLIN_PHASE_IDLE = 0,
  // The handshake is under way.
  DUNLIN_PHASE_CONNECTING = 1,
  // Messages can be sent; the broker has not accepted yet.
  DUNLIN_PHASE_READY = 2,
  // The broker has accepted.
  DUNLIN_PHASE_UP = 3,
  // What was written is on its way, then the connection ends.
  DUNLIN_PHASE_CLOSING = 4,
  // Over. dunlin_connect begins again.
  DUNLIN_PHASE_CLOSED = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum dunlin_phase dunlin_phase;
#else
typedef uint8_t dunlin_phase;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A client. One thread at a time may use it.
typedef struct dunlin_client dunlin_client;

// Memory that the caller gives. May be null if the length is zero, and only then.
typedef struct dunlin_room {
  // Its first byte.
  uint8_t *data;
  // Bytes of it.
  size_t len;
} dunlin_room;

// Bytes that are somewhere else, without a zero behind them. How long they must
// stay there is said where they are given.
typedef struct dunlin_bytes {
  // The first of them; may be null if the length is zero, and only then.
  const uint8_t *data;
  // How many.
  size_t len;
} dunlin_bytes;

// Something that happened. It and its bytes are there until the callback
// returns. What its kind does not name is zero.
typedef struct dunlin_event {
  // What.
  dunlin_kind kind;
  // Whether the broker knows the session.
  bool session;
  // Whether the broker had kept the message.
  bool retain;
  // Quality of service of the message.
  uint8_t qos;
  // Reason code of MQTT.
  uint8_t reason;
  // The number of the message or subscription.
  uint16_t id;
  // Topic of the message.
  struct dunlin_bytes topic;
  // Payload of the message.
  struct dunlin_bytes payload;
} dunlin_event;

// The system below the client. All callbacks come from inside of a call of
// the library, return to it (no longjmp, no exception), and must not call it for
// the same client. Without one of them, but for `event`, no client is made.
typedef struct dunlin_port {
  // Given to all callbacks.
  void *context;
  // Sends a datagram to the broker. One that cannot be sent is a lost one.
  void (*send)(void *context, const uint8_t *data, size_t len);
  // Puts a datagram of the broker into `data` without waiting, and gives its
  // length, or zero if there is none. `room` is the length of the buffer for
  // datagrams; one for which a greater length is given is dropped.
  size_t (*receive)(void *context, uint8_t *data, size_t room);
  // Milliseconds of a clock that never goes back; it may wrap around.
  uint32_t (*now)(void *context);
  // Fills `data` with bytes that cannot be predicted; false if that is not
  // possible. Without it nothing is secret.
  bool (*random)(void *context, uint8_t *data, size_t len);
  // Learns what happened; may be null.
  void (*event)(void *context, const struct dunlin_event *event);
} dunlin_port;

// The buffers of a connection. All of them belong to the library from
// dunlin_new on; this structure is needed for the call only. They need no
// alignment, and must not overlap.
typedef struct dunlin_buffers {
  // What is said first, and a ticket: 400 bytes and the length of a
  // ticket.
  struct dunlin_room hello;
  // Handshake messages of the server: as many bytes as its certificate has,
  // and 100.
  struct dunlin_room handshake;
  // Packets on their way to the broker; the longest one must fit.
  struct dunlin_room send;
  // Packets of the broker; the longest one must fit, and the broker learns
  // it.
  struct dunlin_room receive;
  // One datagram: 1200 bytes at least, 1472 at most.
  struct dunlin_room datagram;
} dunlin_buffers;

// A message to publish. What is not needed is zero, so begin with
// `dunlin_message message = {0}`.
typedef struct dunlin_message {
  // Where: UTF-8, without wildcards, not empty.
  struct dunlin_bytes topic;
  // What; may be empty.
  struct dunlin_bytes payload;
  // Quality of service, 0 to 2.
  uint8_t qos;
  // Whether the broker keeps it for later subscribers.
  bool retain;
  // Zero, or the number that the message had on an earlier connection that
  // ended before it was acknowledged.
  uint16_t again;
  // Zero, or a number from 1 to 8 that names the topic on this connection, so
  // that only the first message with it has the topic. The topic is always
  // given: with another one, the number is that one's from then on. A number
  // that the broker does not take is left aside.
  uint8_t alias;
} dunlin_message;

// How to connect. Either `keys` or `authority` says who the broker must be.
// Everything else may be zero, so begin with `dunlin_options options = {0}`.
//
// The structure itself, the ticket and the structure of the will are needed for
// the call only. All other bytes stay where they are, and as they are, until the
// connection is over. A ticket is for the broker that it came from: who has it is
// believed without a certificate.
typedef struct dunlin_options {
  // Public keys of brokers that are believed, 65 bytes each, one after the
  // other: P-256 points in uncompressed form.
  struct dunlin_bytes keys;
  // Public key of an authority, 65 bytes, that signed the certificate of
  // the broker directly. Used if there are no `keys`.
  struct dunlin_bytes authority;
  // The host name of the broker, in lower case. A certificate of an
  // authority must be for it.
  struct dunlin_bytes name;
  // Instead of a name: the address of the broker, 4 or 16 bytes, highest first.
  struct dunlin_bytes address;
  // Seconds since 1970 to hold the dates of a certificate of an authority
  // against; zero if the device has no clock.
  uint32_t unix_time;
  // Milliseconds of silence after which the connection is lost; zero is never.
  uint32_t idle_ms;
  // A ticket of an earlier connection, if there is one.
  struct dunlin_bytes ticket;
  // Milliseconds since it was taken, sleep included.
  uint32_t ticket_age_ms;
  // Whether messages may be sent before the broker has answered. An
  // attacker who records them can replay them.
  bool early;
  // Certificates of the device for a broker that asks for them, in DER, one behind
  // the other: its own first, then those that lead to an authority of the broker.
  // They stay in the buffer `hello` until the broker has them, with the ticket
  // behind them. May be empty; a library without the feature `client-certificate`
  // shows none.
  struct dunlin_bytes certificates;
  // The private key of the first of them, of P-256, as 32 bytes.
  struct dunlin_bytes private_key;
  // The client identifier; the broker chooses one if it is empty.
  struct dunlin_bytes client_id;
  // User name; may be empty.
  struct dunlin_bytes user;
  // Password; may be empty.
  struct dunlin_bytes password;
  // Seconds after which the broker expects a sign of life, which the
  // library gives; zero is never.
  uint16_t keep_alive;
  // Seconds that the broker keeps the session without a connection, 0xffffffff
  // for ever. A library with the feature `qos2` resumes none of before a reset:
  // packet identifiers that it must know are lost.
  uint32_t expiry;
  // Null, or the message that the broker publishes when the connection ends
  // without dunlin_disconnect. Its bytes stay where they are, like the names.
  const struct dunlin_message *will;
  // Seconds that the broker waits with it, in which the device may come
  // back; `expiry` ends the wait.
  uint32_t will_delay;
} dunlin_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Bytes of memory that a client needs on this machine.
size_t dunlin_size(void);

// Makes a client in `memory`, which belongs to it from now on, as do the
// buffers. `port` and `buffers` themselves are copied. `client` gets the client,
// and is left alone if there is none. It needs no end: memory is used again by
// making another client.
//
// What the caller promises:
// Pointers are null or point to what their types say; memory and buffers stay
// where they are, and are not used otherwise.
dunlin_code dunlin_new(struct dunlin_room memory,
                       const struct dunlin_port *port,
                       const struct dunlin_buffers *buffers,
                       struct dunlin_client **client);

// Begins a connection. What was there before is forgotten without a word to
// the broker, even if there is nothing to begin. `DUNLIN_CODE_TOO_LARGE` says
// that names and will together do not fit into the send buffer; without early
// data, dunlin_run says so.
//
// What the caller promises:
// Pointers are null or point to what their types say. Keys, certificates, name,
// address, client identifier, user, password and the bytes of the will stay where
// they are until the connection is over.
dunlin_code dunlin_connect(struct dunlin_client *client,
                           const struct dunlin_options *how);

// Sends and takes what there is, and tells what happened. `sleep_ms`, if it is
// not null, says for how long nothing needs to be done, unless a datagram arrives
// or another function is called: 0xffffffff without a limit, and zero after an
// event, so that the program can act on it first. A code other than zero is the
// end of the connection, and `DUNLIN_CODE_SESSION_STATE` says that there is none.
//
// What the caller promises:
// Pointers are null or point to what their types say.
dunlin_code dunlin_run(struct dunlin_client *client,
                       uint32_t *sleep_ms);

// Where the client is; `DUNLIN_PHASE_IDLE` also from inside of a callback.
//
// What the caller promises:
// `client` is null or a client.
dunlin_phase dunlin_status(const struct dunlin_client *client);

// Publishes a message. `id`, if it is not null, gets the number under which it
// will be acknowledged, zero with QoS 0. The message is copied, and what is not
// acknowledged before the connection ends is for the program to publish `again`.
// `DUNLIN_CODE_FULL` and `DUNLIN_CODE_QUOTA` mean: once more after the next
// dunlin_run.
//
// What the caller promises:
// Pointers are null or point to what their types say.
dunlin_code dunlin_publish(struct dunlin_client *client,
                           const struct dunlin_message *message,
                           uint16_t *id);

// Asks for the messages of a topic filter, with at most the quality `qos_max`.
// `id`, if it is not null, gets the number of the answer. The filter is copied;
// `DUNLIN_CODE_FULL` as above.
//
// What the caller promises:
// Pointers are null or point to what their types say.
dunlin_code dunlin_subscribe(struct dunlin_client *client,
                             struct dunlin_bytes filter,
                             uint8_t qos_max,
                             uint16_t *id);

// Ends the subscription of a topic filter. `id`, if it is not null, gets the
// number of the answer. The filter is copied; `DUNLIN_CODE_FULL` as above.
//
// What the caller promises:
// Pointers are null or point to what their types say.
dunlin_code dunlin_unsubscribe(struct dunlin_client *client,
                               struct dunlin_bytes filter,
                               uint16_t *id);

// Ends the session in order: what was written still goes out. Go on with
// dunlin_run until the phase is `DUNLIN_PHASE_CLOSED`. `DUNLIN_CODE_FULL` as
// above.
//
// What the caller promises:
// `client` is null or a client.
dunlin_code dunlin_disconnect(struct dunlin_client *client);

// Copies the newest ticket of the connection into `room`, to resume with. `len`
// gets its length, zero if the broker gave none. If `room` is too small, nothing
// is copied, the code is `DUNLIN_CODE_MEMORY`, and `len` is the length needed.
// Ask before the next dunlin_connect. The holder of the ticket is believed to be
// the broker, so keep it as a secret.
//
// What the caller promises:
// Pointers are null or point to what their types say.
dunlin_code dunlin_ticket(struct dunlin_client *client,
                          struct dunlin_room room,
                          size_t *len);

// Goes on from another address: to be called after the network has changed.
// Refused by a build without migration.
//
// What the caller promises:
// `client` is null or a client.
dunlin_code dunlin_migrate(struct dunlin_client *client);

// Changes the keys of the connection. Refused by a build without key updates.
//
// What the caller promises:
// `client` is null or a client.
dunlin_code dunlin_update_keys(struct dunlin_client *client);

// The reason code of MQTT behind `DUNLIN_CODE_REFUSED` and
// `DUNLIN_CODE_DISCONNECTED`; dunlin_reason_text has it in words.
//
// What the caller promises:
// `client` is null or a client.
uint8_t dunlin_reason(const struct dunlin_client *client);

// The number that the broker gave behind `DUNLIN_CODE_CLOSED_BY_PEER`, which is
// one of QUIC, or 0x100 and an alert of TLS, and behind
// `DUNLIN_CODE_CLOSED_BY_APPLICATION`.
//
// What the caller promises:
// `client` is null or a client.
uint32_t dunlin_peer_code(const struct dunlin_client *client);

// Whether the broker took the ticket.
//
// What the caller promises:
// `client` is null or a client.
bool dunlin_is_resumed(const struct dunlin_client *client);

// Whether the broker took what was sent before it had answered. If not, it was
// sent again.
//
// What the caller promises:
// `client` is null or a client.
bool dunlin_took_early_data(const struct dunlin_client *client);

// The round-trip time in milliseconds.
//
// What the caller promises:
// `client` is null or a client.
uint32_t dunlin_rtt_ms(const struct dunlin_client *client);

// What a `dunlin_code` means, in English: a string that ends with a zero and is
// there for ever. Any number may be asked for. A program that does not call this
// has no texts in it.
const char *dunlin_error_text(uint8_t code);

// As dunlin_error_text, for reason codes of MQTT from 128 on.
const char *dunlin_reason_text(uint8_t reason);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DUNLIN_TINY_H */
