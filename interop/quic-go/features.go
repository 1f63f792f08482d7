// What is tried.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	quic "github.com/quic-go/quic-go"
)

// quic-go updates its keys for the first time after 100 packets.
const keyUpdateMessages = 400

type feature struct {
	name, setting string
	try           func()
}

func (t target) features() []feature {
	return []feature{
		{"single", "plain", t.single},
		{"data-streams", "plain", t.dataStreams},
		{"early-streams", "plain", t.earlyStreams},
		{"uni-streams", "plain", t.uniStreams},
		{"datagrams", "plain", t.datagrams},
		{"version", "plain", t.version},
		{"key-update", "plain", t.keyUpdate},
		{"rebind", "plain", t.rebind},
		{"migrate", "plain", t.migrate},
		{"0rtt", "plain", t.zeroRTT},
		{"0rtt-once", "plain", t.zeroRTTOnce},
		{"retry", "retry", t.retry},
		{"token", "retry", t.token},
		{"reset", "restart", t.reset},
		{"0rtt-restart", "restart", t.zeroRTTRestart},
	}
}

func (c *client) close() { c.conn.CloseWithError(0, "") }

func (t target) thereAndBack(c *client, name string, forth io.Writer, ackOn, back *quic.Stream) {
	for qos := byte(0); qos < 3; qos++ {
		topic := t.topic(fmt.Sprintf("%s/%d", name, qos))
		c.subscribe(back, topic, qos)
		c.publish(forth, ackOn, topic, name, qos)
		message := c.message(back)
		want(message.qos(), qos, "QoS")
		want(message.payload(), name, "payload")
	}
}

func (t target) single() {
	c := t.session(dialing{})
	defer c.close()
	t.thereAndBack(c, "single", c.control, c.control, c.control)
}

func (t target) dataStreams() {
	c := t.session(dialing{})
	defer c.close()
	one, two := c.open(), c.open()
	t.thereAndBack(c, "data", one, one, two)
	// Both streams may use an identifier at once.
	for _, stream := range []*quic.Stream{one, two} {
		c.send(stream, publishPacket(t.topic("ids"), "", 1, 777))
	}
	for _, stream := range []*quic.Stream{one, two} {
		want(c.expect(puback, stream).id(), 777, "identifier")
	}
}

func (t target) earlyStreams() {
	c := t.dial(dialing{})
	defer c.close()
	data := c.open()
	topic := t.topic("early")
	c.send(data, append(subscribePacket(1, topic, 1), publishPacket(topic, "early", 1, 2)...))
	c.connack()
	c.expect(suback, data)
	want(c.message(data).payload(), "early", "payload")
}

func (t target) uniStreams() {
	c := t.session(dialing{})
	defer c.close()
	uni, err := c.conn.OpenUniStream()
	check(err)
	t.thereAndBack(c, "uni", uni, c.control, c.control)
	// One for each message, ended after it.
	topic := t.topic("uni/each")
	c.subscribe(c.control, topic, 1)
	for i := range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		each, err := c.conn.OpenUniStreamSync(ctx)
		cancel()
		check(err)
		c.publish(each, c.control, topic, fmt.Sprint(i), 1)
		check(each.Close())
		want(c.message(c.control).payload(), fmt.Sprint(i), "payload")
	}
}

func (t target) datagrams() {
	c := t.session(dialing{user: []string{"dunlin-datagrams", "5000"}})
	defer c.close()
	if !c.conn.ConnectionState().SupportsDatagrams.Remote {
		skip("the broker takes no datagrams")
	}
	topic := t.topic("datagram")
	c.subscribe(c.control, topic, 0)
	check(c.conn.SendDatagram(publishPacket(topic, "by datagram", 0, 0)))
	message := c.message(nil)
	want(message.payload(), "by datagram", "payload")
	want(message.stream, datagram, "stream of the delivery")
}

func (t target) version() {
	seen := &events{}
	c := t.session(dialing{events: seen, versions: []quic.Version{quic.Version2, quic.Version1}})
	defer c.close()
	c.ping()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if c.conn.ConnectionState().Version == quic.Version2 {
		skip("the broker speaks QUIC version 2")
	}
	want(seen.versions, 1, "version negotiation")
}

func (t target) keyUpdate() {
	seen := &events{}
	c := t.session(dialing{events: seen})
	defer c.close()
	topic := t.topic("keys")
	c.subscribe(c.control, topic, 1)
	for i := range keyUpdateMessages {
		c.publish(c.control, c.control, topic, fmt.Sprint(i), 1)
		want(c.message(c.control).payload(), fmt.Sprint(i), "payload")
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	want(seen.keyUpdates > 0, true, "key update")
	want(seen.fromPeer > 0, true, "packets with new keys")
}

// stillThere: messages of its own and of others reach the client.
func (t target) stillThere(c, other *client, name string) {
	topic := t.topic(name)
	c.publish(c.control, c.control, topic, "mine", 2)
	want(c.message(c.control).payload(), "mine", "payload")
	other.publish(other.control, other.control, topic, "theirs", 2)
	want(c.message(c.control).payload(), "theirs", "payload")
}

func (t target) rebind() {
	socket := newMovingSocket()
	c, other := t.session(dialing{socket: socket}), t.session(dialing{})
	defer c.close()
	defer other.close()
	c.subscribe(c.control, t.topic("rebind"), 2)
	for range 3 {
		socket.rebind()
		t.stillThere(c, other, "rebind")
	}
}

func (t target) migrate() {
	c, other := t.session(dialing{}), t.session(dialing{})
	defer c.close()
	defer other.close()
	c.subscribe(c.control, t.topic("migrate"), 2)
	for range 2 {
		transport := &quic.Transport{Conn: listen()}
		path, err := c.conn.AddPath(transport)
		check(err)
		ctx, cancel := context.WithTimeout(context.Background(), waitMax)
		err = path.Probe(ctx)
		cancel()
		check(err)
		// The old path works until the switch.
		t.stillThere(c, other, "migrate")
		check(path.Switch())
		t.stillThere(c, other, "migrate")
		want(c.conn.LocalAddr().String(), transport.Conn.LocalAddr().String(), "address")
	}
}

// ticket is one that allows early data.
func (t target) ticket() *tickets {
	kept := newTickets()
	c := t.session(dialing{tickets: kept})
	defer c.close()
	select {
	case <-kept.came:
	case <-time.After(waitMax):
		skip("the broker gives no ticket")
	}
	c.ping()
	kept.freeze()
	_, state, err := kept.last.ResumptionState()
	check(err)
	if !state.EarlyData {
		skip("the tickets of the broker allow no early data")
	}
	return kept
}

func (t target) early(name string) []byte { return publishPacket(t.topic(name), "early", 1, 1) }

// verdict waits for the end of the handshake.
func (c *client) verdict() bool {
	select {
	case <-c.conn.HandshakeComplete():
	case <-time.After(waitMax):
		check(errors.New("no end of the handshake"))
	}
	return c.conn.ConnectionState().Used0RTT
}

func (t target) zeroRTT() {
	kept := t.ticket()
	watcher := t.session(dialing{})
	defer watcher.close()
	watcher.subscribe(watcher.control, t.topic("0rtt"), 1)
	// The client hears nothing of the broker until the message is there.
	socket := newMovingSocket()
	socket.held = make(chan struct{})
	c := t.dial(dialing{tickets: kept, socket: socket, early: t.early("0rtt")})
	defer c.close()
	want(watcher.message(nil).payload(), "early", "payload")
	close(socket.held)
	want(c.verdict(), true, "accepted")
	c.connack()
	want(c.expect(puback, c.control).id(), 1, "identifier")
	t.thereAndBack(c, "0rtt/after", c.control, c.control, c.control)
}

func (t target) zeroRTTOnce() {
	kept := t.ticket()
	watcher := t.session(dialing{})
	defer watcher.close()
	watcher.subscribe(watcher.control, t.topic("once"), 1)
	c := t.dial(dialing{tickets: kept, early: t.early("once")})
	want(c.verdict(), true, "accepted at first")
	c.connack()
	c.expect(puback, c.control)
	watcher.message(nil)
	c.close()
	t.refusedEarly(kept, "once")
	watcher.message(nil)
	watcher.nothingMore()
}

// refusedEarly sends again after a refusal, as quic-go leaves it to its user.
func (t target) refusedEarly(kept *tickets, name string) {
	c := t.dial(dialing{tickets: kept, early: t.early(name)})
	want(c.verdict(), false, "accepted")
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	conn, err := c.conn.NextConnection(ctx)
	check(err)
	c = newClient(conn)
	defer c.close()
	c.send(c.control, append(connectPacket(t.clientID()), t.early(name)...))
	c.connack()
	c.expect(puback, c.control)
}

func (t target) retry() {
	seen := &events{}
	c := t.session(dialing{events: seen})
	defer c.close()
	t.thereAndBack(c, "retry", c.control, c.control, c.control)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	want(seen.retries, 1, "Retry packets")
}

func (t target) token() {
	tokens := quic.NewLRUTokenStore(1, 4)
	c := t.session(dialing{tokens: tokens})
	c.ping()
	c.close()
	seen := &events{}
	c = t.session(dialing{tokens: tokens, events: seen})
	defer c.close()
	c.ping()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	want(seen.retries, 0, "Retry packets")
}

func (t target) reset() {
	c := t.session(dialing{})
	ask("kill")
	// It may have heard of the end already.
	_, _ = c.control.Write(encode(0xc0))
	select {
	case <-c.conn.Context().Done():
	case <-time.After(waitMax):
		check(errors.New("no end of the connection"))
	}
	var reset *quic.StatelessResetError
	if err := context.Cause(c.conn.Context()); !errors.As(err, &reset) {
		check(fmt.Errorf("ended by %w", err))
	}
}

func (t target) zeroRTTRestart() {
	kept := t.ticket()
	ask("restart")
	c := t.dial(dialing{tickets: kept, early: t.early("restart")})
	defer c.close()
	want(c.verdict(), true, "accepted")
	c.connack()
	c.expect(puback, c.control)
	t.refusedEarly(kept, "restart")
}
