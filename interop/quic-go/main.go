// quic-go as a client of MQTT over QUIC: answers for the features of
// scripts/interop/features.py as described there.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	quic "github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

// Longest that one feature may take.
const featureMax = 30 * time.Second

// errSkip: the client or the broker cannot do this.
var errSkip = errors.New("")

func skip(format string, args ...any) {
	panic(fmt.Errorf("%w%s", errSkip, fmt.Sprintf(format, args...)))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func want[T comparable](got, wanted T, what string) {
	if got != wanted {
		panic(fmt.Errorf("%s: got %v, want %v", what, got, wanted))
	}
}

type target struct {
	addr *net.UDPAddr
	host string
	pool *x509.CertPool
	run  string
}

// tickets keeps the last session and gives it as often as asked.
type tickets struct {
	mu    sync.Mutex
	last  *tls.ClientSessionState
	came  chan struct{}
	given int
}

func newTickets() *tickets { return &tickets{came: make(chan struct{}, 64)} }

func (t *tickets) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last, t.last != nil
}

func (t *tickets) Put(_ string, session *tls.ClientSessionState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if session != nil && t.given == 0 {
		t.last = session
		t.came <- struct{}{}
	}
}

// freeze keeps the ticket that is there.
func (t *tickets) freeze() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.given = 1
}

// events counts what quic-go records.
type events struct {
	mu         sync.Mutex
	keyUpdates int
	fromPeer   int
	retries    int
	versions   int
}

func (e *events) AddProducer() qlogwriter.Recorder { return e }
func (e *events) SupportsSchemas(string) bool      { return true }
func (e *events) Close() error                     { return nil }

func (e *events) RecordEvent(event qlogwriter.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch event := event.(type) {
	case qlog.KeyUpdated:
		// Either side may begin.
		if event.Trigger != qlog.KeyUpdateTLS && event.KeyType == qlog.KeyTypeClient1RTT {
			e.keyUpdates++
		}
	case qlog.PacketReceived:
		switch {
		case event.Header.PacketType == qlog.PacketTypeRetry:
			e.retries++
		case event.Header.PacketType == qlog.PacketType1RTT && event.Header.KeyPhaseBit == qlog.KeyPhaseOne:
			e.fromPeer++
		}
	case qlog.VersionNegotiationReceived:
		e.versions++
	}
}

// dialing is how to connect.
type dialing struct {
	tickets  *tickets
	tokens   quic.TokenStore
	events   *events
	socket   *movingSocket
	versions []quic.Version
	user     []string
	// Written with CONNECT, before the handshake ends.
	early []byte
	id    string
}

func (t target) dial(how dialing) *client {
	if how.socket == nil {
		how.socket = newMovingSocket()
	}
	security := &tls.Config{RootCAs: t.pool, ServerName: t.host, NextProtos: []string{"mqtt"}}
	if how.tickets != nil {
		security.ClientSessionCache = how.tickets
	}
	config := &quic.Config{
		EnableDatagrams: true,
		Versions:        how.versions,
		TokenStore:      how.tokens,
		MaxIdleTimeout:  20 * time.Second,
	}
	if how.events != nil {
		config.Tracer = func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace { return how.events }
	}
	transport := &quic.Transport{Conn: how.socket}
	ctx, cancel := context.WithTimeout(context.Background(), waitMax)
	defer cancel()
	conn, err := transport.DialEarly(ctx, t.addr, security, config)
	check(err)
	c := newClient(conn)
	if how.id == "" {
		how.id = t.clientID()
	}
	c.send(c.control, append(connectPacket(how.id, how.user...), how.early...))
	return c
}

// session is a connected client.
func (t target) session(how dialing) *client {
	c := t.dial(how)
	c.connack()
	return c
}

var serial int

func (t target) clientID() string {
	serial++
	return fmt.Sprintf("quic-go-%s-%d", t.run, serial)
}

func (t target) topic(name string) string { return "interop/quic-go/" + t.run + "/" + name }

var answers = bufio.NewReader(os.Stdin)

// ask asks the runner for something and waits until it is done.
func ask(word string) {
	fmt.Println(word)
	if _, err := answers.ReadString('\n'); err != nil {
		skip("no answer to %q", word)
	}
}

func report(name string, scenario func()) {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		scenario()
	}()
	var failed any
	select {
	case failed = <-done:
	case <-time.After(featureMax):
		failed = fmt.Errorf("no end in %v", featureMax)
	}
	reason := strings.ReplaceAll(fmt.Sprint(failed), "\n", " ")
	err, isError := failed.(error)
	switch {
	case failed == nil:
		fmt.Println("ok", name)
	case isError && errors.Is(err, errSkip):
		fmt.Printf("skip %s: %s\n", name, reason)
	default:
		fmt.Printf("not ok %s: %s\n", name, reason)
	}
}

func main() {
	port := flag.Int("port", 0, "UDP port of the broker")
	ca := flag.String("ca", "", "certificate authority, in PEM")
	setting := flag.String("setting", "plain", "setting of the broker")
	only := flag.String("only", "", "one feature")
	flag.Parse()
	pem, err := os.ReadFile(*ca)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	t := target{
		addr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: *port},
		host: "localhost",
		pool: pool,
		run:  fmt.Sprintf("%x", time.Now().UnixNano()),
	}
	for _, feature := range t.features() {
		if feature.setting == *setting && (*only == "" || *only == feature.name) {
			report(feature.name, feature.try)
		}
	}
	// What this client does not try.
	fmt.Println("end")
}
