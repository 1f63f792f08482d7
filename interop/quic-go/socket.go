// A UDP socket whose port can change while it is in use, as behind a NAT that
// forgot, and that can hold back everything after the first flight.
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
	// Hold back what is sent after the first datagram has arrived.
	hold    bool
	arrived bool
	held    []heldBack
}

type heldBack struct {
	data []byte
	to   net.Addr
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

// release sends what was held back.
func (s *movingSocket) release() {
	s.mu.Lock()
	held := s.held
	s.hold, s.held = false, nil
	s.mu.Unlock()
	for _, h := range held {
		_, err := s.WriteTo(h.data, h.to)
		check(err)
	}
}

func (s *movingSocket) ReadFrom(p []byte) (int, net.Addr, error) {
	for {
		socket := s.current()
		n, addr, err := socket.ReadFrom(p)
		s.mu.Lock()
		moved := s.socket != socket && !s.closed
		s.arrived = s.arrived || err == nil
		s.mu.Unlock()
		if err == nil || !moved {
			return n, addr, err
		}
	}
}

func (s *movingSocket) WriteTo(p []byte, addr net.Addr) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hold && s.arrived {
		s.held = append(s.held, heldBack{append([]byte(nil), p...), addr})
		return len(p), nil
	}
	return s.socket.WriteTo(p, addr)
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
