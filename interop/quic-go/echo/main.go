// quic-go as a server that echoes streams, for the microcontroller's client.
// usage: echo CERTIFICATE KEY [--retry | --group]
package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"

	quic "github.com/quic-go/quic-go"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: echo CERTIFICATE KEY [--retry | --group]")
		os.Exit(2)
	}
	option := ""
	if len(os.Args) > 3 {
		option = os.Args[3]
	}
	if err := serve(os.Args[1], os.Args[2], option); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func serve(certificate, key, option string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	transport := &quic.Transport{
		Conn:                socket,
		VerifySourceAddress: func(net.Addr) bool { return option == "--retry" },
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"echo"}}
	if option == "--group" {
		config.CurvePreferences = []tls.CurveID{tls.CurveP256}
	}
	listener, err := transport.ListenEarly(config, &quic.Config{Allow0RTT: true})
	if err != nil {
		return err
	}
	fmt.Println("port", socket.LocalAddr().(*net.UDPAddr).Port)
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		go func() {
			for {
				stream, err := connection.AcceptStream(context.Background())
				if err != nil {
					return
				}
				go func() {
					if _, err := io.Copy(stream, stream); err == nil {
						stream.Close()
					}
				}()
			}
		}()
	}
}
