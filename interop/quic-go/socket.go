// A UDP socket whose port can change while it is in use, as behind a NAT that
// forgot, and that can keep from its owner what arrives, so that nothing but the
// first flight leaves.
package main

import (
	"net"
	"sync"
	"time"
)

type movingSocket struct {
	mu     sync.Mutex
	socket *net.UDPConn
	closed bool
	// Nothing is read before it is closed, where there is one.
	held chan struct{}
}

func listen() *net.UDPConn {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err)
	return socket
}

func newMovingSocket() *movingSocket { return &movingSocket{socket: listen()} }

func (s *movingSocket) current() *net.UDPConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket
}

// rebind goes on from another port.
func (s *movingSocket) rebind() {
	s.mu.Lock()
	old := s.socket
	s.socket = listen()
	s.mu.Unlock()
	old.Close()
}

func (s *movingSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	if s.held != nil {
		<-s.held
	}
	for {
		socket := s.current()
		n, addr, err := socket.ReadFrom(p)
		s.mu.Lock()
		moved := s.socket != socket && !s.closed
		s.mu.Unlock()
		if err == nil || !moved {
			return n, addr, err
		}
	}
}

func (s *movingSocket) WriteTo(p []byte, addr net.Addr) (int, error) {
	return s.current().WriteTo(p, addr)
}

func (s *movingSocket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.socket.Close()
}

func (s *movingSocket) LocalAddr() net.Addr                { return s.current().LocalAddr() }
func (s *movingSocket) SetDeadline(t time.Time) error      { return s.current().SetDeadline(t) }
func (s *movingSocket) SetReadDeadline(t time.Time) error  { return s.current().SetReadDeadline(t) }
func (s *movingSocket) SetWriteDeadline(t time.Time) error { return s.current().SetWriteDeadline(t) }
