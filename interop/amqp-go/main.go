//! go-amqp as an AMQP 1.0 client under the scenarios of scripts/interop/scenarios.py;
//! Debian's mosquitto clients are at the other end where a message changes protocol.

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	secondsMax    = 10 * time.Second
	burstMessages = 500
	largeBytes    = 200_000
	smallestFrame = 512
)

var (
	host      = flag.String("host", "localhost", "")
	port      = flag.String("port", "", "")
	transport = flag.String("transport", "", "")
	_         = flag.String("version", "", "")
	ca        = flag.String("ca", "", "")
)

type skip string

func (s skip) Error() string { return string(s) }

// link is a connection with a session, and what a scenario does with them.
type link struct {
	ctx     context.Context
	conn    *amqp.Conn
	session *amqp.Session
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(got, want any, what string) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Errorf("%s: got %.120v, want %.120v", what, got, want))
	}
}

func random() string {
	name := make([]byte, 6)
	_, err := rand.Read(name)
	check(err)
	return hex.EncodeToString(name)
}

func topic() string { return "interop/go/" + *transport + "/" + random() }

func dial(ctx context.Context, options amqp.ConnOptions) (*amqp.Conn, error) {
	scheme := "amqp://"
	if *transport == "tls" {
		scheme = "amqps://"
		pem, err := os.ReadFile(*ca)
		check(err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		options.TLSConfig = &tls.Config{RootCAs: roots, ServerName: *host}
	}
	return amqp.Dial(ctx, scheme+*host+":"+*port, &options)
}

// using runs a scenario on a connection of its own and closes it.
func using(options amqp.ConnOptions, body func(link)) func() {
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*secondsMax)
		defer cancel()
		conn, err := dial(ctx, options)
		check(err)
		session, err := conn.NewSession(ctx, nil)
		check(err)
		body(link{ctx, conn, session})
		check(conn.Close())
	}
}

func (l link) receiver(source string, options *amqp.ReceiverOptions) *amqp.Receiver {
	receiver, err := l.session.NewReceiver(l.ctx, source, options)
	check(err)
	return receiver
}

func (l link) sender(target string, options *amqp.SenderOptions) *amqp.Sender {
	sender, err := l.session.NewSender(l.ctx, target, options)
	check(err)
	return sender
}

func (l link) send(sender *amqp.Sender, message *amqp.Message) {
	check(sender.Send(l.ctx, message, nil))
}

// next is the next message, which is accepted.
func (l link) next(receiver *amqp.Receiver) *amqp.Message {
	message := l.receive(receiver)
	check(receiver.AcceptMessage(l.ctx, message))
	return message
}

func (l link) receive(receiver *amqp.Receiver) *amqp.Message {
	ctx, cancel := context.WithTimeout(l.ctx, secondsMax)
	defer cancel()
	message, err := receiver.Receive(ctx, nil)
	check(err)
	return message
}

func data(text string) *amqp.Message { return amqp.NewMessage([]byte(text)) }

func through(options amqp.ConnOptions, sending *amqp.SenderOptions) func() {
	return using(options, func(l link) {
		at := topic()
		from, to := l.receiver(at, nil), l.sender(at, sending)
		for _, body := range []string{"one", "", "drei €"} {
			l.send(to, data(body))
			expect(string(l.next(from).GetData()), body, "body")
		}
	})
}

func sasl() {
	ctx, cancel := context.WithTimeout(context.Background(), secondsMax)
	defer cancel()
	for _, options := range []amqp.ConnOptions{
		{},
		{SASLType: amqp.SASLTypeAnonymous()},
		{SASLType: amqp.SASLTypePlain("alice", "wonderland")},
	} {
		conn, err := dial(ctx, options)
		check(err)
		check(conn.Close())
	}
	_, err := dial(ctx, amqp.ConnOptions{SASLType: amqp.SASLTypePlain("alice", "looking-glass")})
	expect(err != nil, true, "a wrong password is refused")
}

func large(l link) {
	at := topic()
	from, to := l.receiver(at, nil), l.sender(at, nil)
	body := make([]byte, largeBytes)
	_, err := rand.Read(body)
	check(err)
	l.send(to, amqp.NewMessage(body))
	expect(bytes.Equal(l.next(from).GetData(), body), true, "body")
}

func wildcard(l link) {
	at := topic()
	from := l.receiver(at+"/+/c/#", nil)
	for _, tail := range []string{"a/x", "a/c", "b/c/d/e", "c"} {
		l.send(l.sender(at+"/"+tail, nil), data(tail))
	}
	got := map[string]bool{}
	for range 2 {
		got[string(l.next(from).GetData())] = true
	}
	expect(got, map[string]bool{"a/c": true, "b/c/d/e": true}, "matches")
}

func relay(l link) {
	at := topic()
	from, to := l.receiver(at+"/#", nil), l.sender("", nil)
	for _, tail := range []string{"a", "b"} {
		message, address := data(tail), at+"/"+tail
		message.Properties = &amqp.MessageProperties{To: &address}
		l.send(to, message)
		expect(string(l.next(from).GetData()), tail, "body")
	}
}

func pointer[T any](value T) *T { return &value }

func properties(l link) {
	at := topic()
	from, to := l.receiver(at, nil), l.sender(at, nil)
	sent := &amqp.Message{
		Header: &amqp.MessageHeader{Durable: true, Priority: 7},
		Properties: &amqp.MessageProperties{
			MessageID: amqp.UUID{1, 2, 3}, CorrelationID: uint64(7), Subject: pointer("greeting"),
			ReplyTo: pointer(at + "/reply"), ContentType: pointer("text/plain"),
			GroupID: pointer("group"), GroupSequence: pointer(uint32(4)),
		},
		Annotations:           amqp.Annotations{"x-opt-mark": "m"},
		ApplicationProperties: map[string]any{"text": "a", "number": int64(42), "real": 0.5, "flag": true},
		Value:                 map[string]any{"list": []any{int64(1), "two"}, "bytes": []byte{0, 255}},
	}
	l.send(to, sent)
	got := l.next(from)
	expect(got.Properties, sent.Properties, "properties")
	expect(got.ApplicationProperties, sent.ApplicationProperties, "application-properties")
	expect(got.Annotations, sent.Annotations, "annotations")
	expect(got.Value, sent.Value, "body")
	expect(got.Header.Durable, true, "durable")
	expect(got.Header.Priority, uint8(7), "priority")
}

func expiry(l link) {
	at := topic()
	from, to := l.receiver(at, nil), l.sender(at, nil)
	message := data("x")
	message.Header = &amqp.MessageHeader{TTL: 30 * time.Second, Priority: 4}
	l.send(to, message)
	left := l.next(from).Header.TTL
	expect(0 < left && left <= 30*time.Second, true, "time to live is what is left")
}

func outcomes(l link) {
	at := topic()
	from, to := l.receiver(at, nil), l.sender(at, nil)
	l.send(to, data("first"))
	check(from.ReleaseMessage(l.ctx, l.receive(from)))
	again := l.receive(from)
	expect(string(again.GetData()), "first", "again")
	check(from.ModifyMessage(l.ctx, again, &amqp.ModifyMessageOptions{DeliveryFailed: true}))
	again = l.receive(from)
	expect(again.Header.DeliveryCount, uint32(1), "delivery-count")
	check(from.RejectMessage(l.ctx, again, &amqp.Error{Condition: amqp.ErrCondInternalError}))
	l.send(to, data("second"))
	expect(string(l.next(from).GetData()), "second", "the next")
}

func drain(l link) {
	at := topic()
	from := l.receiver(at, &amqp.ReceiverOptions{Credit: -1})
	to := l.sender(at, nil)
	for range 4 {
		l.send(to, data("x"))
	}
	check(from.IssueCredit(10))
	for range 4 {
		l.next(from)
	}
	check(from.DrainCredit(l.ctx, nil))
	expect(from.Prefetched() == nil, true, "no more")
	check(from.IssueCredit(1))
	l.send(to, data("after"))
	expect(string(l.next(from).GetData()), "after", "credit works as before")
}

func burst(l link) {
	at := topic()
	from := l.receiver(at, &amqp.ReceiverOptions{Credit: 100})
	to := l.sender(at, nil)
	failed := make(chan error, 1)
	go func() {
		var receipts []amqp.SendReceipt
		for n := range burstMessages {
			receipt, err := to.SendWithReceipt(l.ctx, data(fmt.Sprint(n)), nil)
			if err != nil {
				failed <- err
				return
			}
			receipts = append(receipts, receipt)
		}
		for _, receipt := range receipts {
			if _, err := receipt.Wait(l.ctx); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	for n := range burstMessages {
		expect(string(l.next(from).GetData()), fmt.Sprint(n), "in order")
	}
	check(<-failed)
}

func refused(l link) {
	for _, address := range []string{"a/#/b", "$SYS/x"} {
		sender, err := l.session.NewSender(l.ctx, address, nil)
		if err == nil {
			err = sender.Send(l.ctx, data("x"), nil)
		}
		var refused *amqp.Error
		expect(errors.As(err, &refused), true, address+" is refused")
	}
	l.send(l.sender(topic(), nil), data("x"))
}

func idle(l link) {
	at := topic()
	from, to := l.receiver(at, nil), l.sender(at, nil)
	time.Sleep(4 * time.Second)
	l.send(to, data("still here"))
	expect(string(l.next(from).GetData()), "still here", "body")
}

func mosquitto(program string, arguments ...string) *exec.Cmd {
	base := []string{"-h", *host, "-p", os.Getenv("INTEROP_TCP_PORT"), "-V", "5", "-q", "1"}
	return exec.Command("mosquitto_"+program, append(base, arguments...)...)
}

func needMosquitto() {
	if _, err := exec.LookPath("mosquitto_sub"); err != nil {
		panic(skip("mosquitto_sub is not installed"))
	}
}

func toMqtt(l link) {
	needMosquitto()
	at := topic()
	to := l.sender(at, nil)
	output := make(chan string, 1)
	go func() {
		text, _ := mosquitto("sub", "-t", at, "-C", "1", "-W", "10", "-F", "%j").Output()
		output <- string(text)
	}()
	message := data("payload")
	message.Header = &amqp.MessageHeader{Durable: true, Priority: 4, TTL: time.Minute}
	message.Properties = &amqp.MessageProperties{
		ContentType: pointer("text/plain"), ReplyTo: pointer("answers"), CorrelationID: []byte("ab"),
	}
	message.ApplicationProperties = map[string]any{"k": "v"}
	for {
		l.send(to, message)
		select {
		case text := <-output:
			var got struct {
				Payload    string
				QoS        int
				Properties map[string]any
			}
			check(json.Unmarshal([]byte(text), &got))
			expect(got.Payload, "payload", "body")
			expect(got.QoS, 1, "QoS")
			expect(got.Properties["content-type"], "text/plain", "Content Type")
			expect(got.Properties["response-topic"], "answers", "Response Topic")
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func fromMqtt(l link) {
	needMosquitto()
	at := topic()
	from := l.receiver(at, nil)
	text, err := mosquitto("pub", "-t", at, "-m", "payload", "-D", "publish", "content-type", "text/plain",
		"-D", "publish", "response-topic", "answers", "-D", "publish", "user-property", "k", "v").CombinedOutput()
	if err != nil {
		panic(fmt.Errorf("mosquitto_pub: %s", text))
	}
	got := l.next(from)
	expect(string(got.GetData()), "payload", "body")
	expect(*got.Properties.ContentType, "text/plain", "content-type")
	expect(*got.Properties.ReplyTo, "answers", "reply-to")
	expect(*got.Properties.To, at, "to")
	expect(got.ApplicationProperties, map[string]any{"k": "v"}, "application-properties")
	expect(got.Header.Durable, true, "durable")
}

// run says what became of a scenario.
func run(name string, scenario func()) (line string) {
	defer func() {
		why := recover()
		if reason, ok := why.(skip); ok {
			line = "skip " + name + ": " + string(reason)
		} else if why != nil {
			line = fmt.Sprintf("not ok %s: %v", name, why)
		}
		line = strings.ReplaceAll(line, "\n", " ")
	}()
	scenario()
	return "ok " + name
}

func main() {
	flag.Parse()
	plain := amqp.ConnOptions{}
	scenarios := map[string]func(){
		"settled":      through(plain, &amqp.SenderOptions{SettlementMode: amqp.SenderSettleModeSettled.Ptr()}),
		"unsettled":    through(plain, nil),
		"sasl":         sasl,
		"small-frames": through(amqp.ConnOptions{MaxFrameSize: smallestFrame}, nil),
		"large":        using(plain, large),
		"wildcard":     using(plain, wildcard),
		"relay":        using(plain, relay),
		"properties":   using(plain, properties),
		"expiry":       using(plain, expiry),
		"to-mqtt":      using(plain, toMqtt),
		"from-mqtt":    using(plain, fromMqtt),
		"outcomes":     using(plain, outcomes),
		"drain":        using(plain, drain),
		"burst":        using(plain, burst),
		"refused":      using(plain, refused),
		"idle":         using(amqp.ConnOptions{IdleTimeout: time.Second}, idle),
	}
	for _, name := range strings.Fields(os.Getenv("INTEROP_SCENARIOS")) {
		if scenario := scenarios[name]; scenario != nil {
			fmt.Println(run(name, scenario))
		} else {
			fmt.Println("skip " + name + ": not a scenario of this client")
		}
	}
}
