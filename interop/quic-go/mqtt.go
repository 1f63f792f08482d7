// MQTT 5.0 packets, as few as the features need, and a client that puts them on
// the streams it is given. Knows no feature.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"time"

	quic "github.com/quic-go/quic-go"
)

// Longest that one expected packet may take.
const waitMax = 5 * time.Second

// Where a packet out of a datagram came from: no stream.
const datagram quic.StreamID = -1

const (
	connack  = 2
	publish  = 3
	puback   = 4
	pubrec   = 5
	pubrel   = 6
	pubcomp  = 7
	suback   = 9
	pingresp = 13
)

type packet struct {
	stream quic.StreamID
	kind   byte
	flags  byte
	body   []byte
}

func text(s string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...)
}

func encode(first byte, parts ...[]byte) []byte {
	var body []byte
	for _, part := range parts {
		body = append(body, part...)
	}
	out := []byte{first}
	for rest := len(body); ; {
		low := byte(rest & 0x7f)
		rest >>= 7
		if rest == 0 {
			return append(append(out, low), body...)
		}
		out = append(out, low|0x80)
	}
}

// connectPacket is CONNECT with Clean Start; user properties come in pairs.
func connectPacket(id string, user ...string) []byte {
	var properties []byte
	for i := 0; i+1 < len(user); i += 2 {
		properties = append(properties, 0x26)
		properties = append(append(properties, text(user[i])...), text(user[i+1])...)
	}
	head := []byte{5, 2, 0, 30, byte(len(properties))}
	return encode(0x10, text("MQTT"), head, properties, text(id))
}

func subscribePacket(id uint16, filter string, qos byte) []byte {
	return encode(0x82, []byte{byte(id >> 8), byte(id), 0}, text(filter), []byte{qos})
}

func publishPacket(topic, payload string, qos byte, id uint16) []byte {
	var tail []byte
	if qos > 0 {
		tail = []byte{byte(id >> 8), byte(id)}
	}
	return encode(0x30|qos<<1, text(topic), tail, []byte{0}, []byte(payload))
}

func ackPacket(kind byte, id uint16) []byte {
	first := kind << 4
	if kind == pubrel {
		first |= 2
	}
	return encode(first, []byte{byte(id >> 8), byte(id)})
}

func readPacket(r io.ByteReader, stream quic.StreamID) (packet, error) {
	first, err := r.ReadByte()
	if err != nil {
		return packet{}, err
	}
	length, err := binary.ReadUvarint(r)
	if err != nil {
		return packet{}, err
	}
	body := make([]byte, length)
	for i := range body {
		if body[i], err = r.ReadByte(); err != nil {
			return packet{}, err
		}
	}
	return packet{stream, first >> 4, first & 15, body}, nil
}

func (p packet) qos() byte { return p.flags >> 1 & 3 }

func (p packet) topicLen() int {
	if p.kind != publish {
		return 0
	}
	return 2 + int(binary.BigEndian.Uint16(p.body))
}

func (p packet) id() uint16 { return binary.BigEndian.Uint16(p.body[p.topicLen():]) }

func (p packet) payload() string {
	at := p.topicLen()
	if p.qos() > 0 {
		at += 2
	}
	// Properties of less than 128 bytes.
	return string(p.body[at+1+int(p.body[at]):])
}

// client is one connection with its control stream.
type client struct {
	conn    *quic.Conn
	control *quic.Stream
	arrived chan packet
	// Packets that were not asked for yet.
	kept   []packet
	nextID uint16
	// Streams to answer on.
	mu      sync.Mutex
	streams map[quic.StreamID]io.Writer
}

func newClient(conn *quic.Conn) *client {
	c := &client{conn: conn, arrived: make(chan packet, 1024), nextID: 1}
	c.streams = map[quic.StreamID]io.Writer{}
	c.control = c.open()
	go func() {
		for {
			data, err := conn.ReceiveDatagram(conn.Context())
			if err != nil {
				return
			}
			if p, err := readPacket(&bytesReader{data}, datagram); err == nil {
				c.arrived <- p
			}
		}
	}()
	return c
}

type bytesReader struct{ data []byte }

func (r *bytesReader) ReadByte() (byte, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b, nil
}

// open opens a bidirectional stream and reads packets from it.
func (c *client) open() *quic.Stream {
	stream, err := c.conn.OpenStream()
	check(err)
	c.mu.Lock()
	c.streams[stream.StreamID()] = stream
	c.mu.Unlock()
	go func() {
		reader := bufio.NewReader(stream)
		for {
			p, err := readPacket(reader, stream.StreamID())
			if err != nil {
				return
			}
			c.arrived <- p
		}
	}()
	return stream
}

func (c *client) send(w io.Writer, data []byte) {
	_, err := w.Write(data)
	check(err)
}

// expect is the next packet of a type on a stream; a packet that only matches
// the type when `on` is nil.
func (c *client) expect(kind byte, on *quic.Stream) packet {
	matches := func(p packet) bool {
		return p.kind == kind && (on == nil || p.stream == on.StreamID())
	}
	for i, p := range c.kept {
		if matches(p) {
			c.kept = append(c.kept[:i:i], c.kept[i+1:]...)
			return p
		}
	}
	late := time.After(waitMax)
	for {
		select {
		case p := <-c.arrived:
			if matches(p) {
				return p
			}
			c.kept = append(c.kept, p)
		case <-c.conn.Context().Done():
			check(context.Cause(c.conn.Context()))
		case <-late:
			check(fmt.Errorf("no packet of type %d in %v", kind, waitMax))
		}
	}
}

func (c *client) connack() {
	p := c.expect(connack, c.control)
	want(p.body[1], byte(0), "CONNACK")
}

func (c *client) packetID() uint16 {
	c.nextID++
	return c.nextID - 1
}

func (c *client) subscribe(on *quic.Stream, filter string, qos byte) {
	c.send(on, subscribePacket(c.packetID(), filter, qos))
	p := c.expect(suback, on)
	want(p.body[len(p.body)-1], qos, "SUBACK")
}

// publish publishes on one stream; acknowledgements come on `back`.
func (c *client) publish(on io.Writer, back *quic.Stream, topic, payload string, qos byte) {
	id := c.packetID()
	c.send(on, publishPacket(topic, payload, qos, id))
	switch qos {
	case 1:
		want(c.expect(puback, back).id(), id, "identifier")
	case 2:
		want(c.expect(pubrec, back).id(), id, "identifier")
		c.send(on, ackPacket(pubrel, id))
		want(c.expect(pubcomp, back).id(), id, "identifier")
	}
}

// message is the next message, acknowledged on the stream it came on.
func (c *client) message(on *quic.Stream) packet {
	p := c.expect(publish, on)
	c.mu.Lock()
	back := c.streams[p.stream]
	c.mu.Unlock()
	switch p.qos() {
	case 1:
		c.send(back, ackPacket(puback, p.id()))
	case 2:
		c.send(back, ackPacket(pubrec, p.id()))
		c.expect(pubrel, nil)
		c.send(back, ackPacket(pubcomp, p.id()))
	}
	return p
}

// ping: everything before has been handled when it returns.
func (c *client) ping() {
	c.send(c.control, encode(0xc0))
	c.expect(pingresp, c.control)
}

// nothingMore fails when there is a message that was not asked for.
func (c *client) nothingMore() {
	c.ping()
	for _, p := range c.kept {
		if p.kind == publish {
			check(fmt.Errorf("a message too many: %q", p.payload()))
		}
	}
}
